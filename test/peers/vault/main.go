// Command vault-peer is a Vault server for tests: the server's own core, unsealed,
// on a loopback address. Its storage is memory, or a folder with -data, where a
// server started again finds what the one before it left. With -standby there is a
// second node over the same memory, which waits to become active and forwards
// nothing. When it is ready it writes one line of JSON to stdout: {"address",
// "root_token", "unseal_key"} and, of the second node, "standby". It ends when its
// stdin does, so that it never outlives the test that started it.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	authkubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	"github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/audit"
	"github.com/hashicorp/vault/builtin/credential/approle"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical"
	"github.com/hashicorp/vault/sdk/physical/file"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

var secrets = map[string]logical.Factory{"kv": kv.Factory, "accounts": accountsFactory}

var credentials = map[string]logical.Factory{"approle": approle.Factory, "kubernetes": authkubernetes.Factory}

// largest is the size of a request, and of a string in it, in bytes. Vault's own
// limit for a string is 1 MiB, and tests want more.
const largest = 16 << 20

// becomesActive bounds the wait for the first of two nodes.
const becomesActive = 30 * time.Second

// started is the line on stdout, and what the data folder remembers.
type started struct {
	Address   string `json:"address"`
	RootToken string `json:"root_token"`
	UnsealKey string `json:"unseal_key"` // base64
	Standby   string `json:"standby,omitempty"`
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	data := flag.String("data", "", "folder that keeps the server's data; memory if empty")
	standby := flag.Bool("standby", false, "a second node, on standby; in memory only")
	level := flag.String("log-level", "error", "what to log to stderr")
	flag.Parse()
	if err := run(*listen, *data, *standby, *level); err != nil {
		fmt.Fprintln(os.Stderr, "vault-peer:", err)
		os.Exit(1)
	}
}

func run(listen, data string, standby bool, level string) error {
	ctx := context.Background()
	log := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.LevelFromString(level)})
	c := &cluster{log: log, served: make(chan error, 2)}
	var err error
	if c.storage, err = open(data, log); err != nil {
		return err
	}
	if standby {
		if data != "" {
			return errors.New("-standby is for a server in memory")
		}
		locks, err := inmem.NewInmemHA(nil, log)
		if err != nil {
			return err
		}
		c.locks, _ = locks.(physical.HABackend)
	}
	active, err := c.node(listen)
	if err != nil {
		return err
	}
	made, err := unsealed(ctx, active.core, data)
	if err != nil {
		return err
	}
	made.Address = active.address
	if standby {
		if made.Standby, err = c.standby(active, made.UnsealKey); err != nil {
			return err
		}
	}
	active.serve()
	if err := json.NewEncoder(os.Stdout).Encode(made); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	select {
	case err := <-c.served:
		return err
	case err := <-ended:
		return err
	}
}

// cluster is what the nodes have in common.
type cluster struct {
	log     hclog.Logger
	storage physical.Backend
	locks   physical.HABackend // nil where there is one node
	served  chan error
}

type node struct {
	*cluster
	core    *vault.Core
	listen  net.Listener
	address string
}

func (c *cluster) node(listen string) (*node, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	n := &node{cluster: c, listen: l, address: "http://" + l.Addr().String()}
	n.core, err = vault.NewCore(&vault.CoreConfig{
		Physical: c.storage, HAPhysical: c.locks, LogicalBackends: secrets, CredentialBackends: credentials, BuiltinRegistry: registry{},
		AuditBackends: map[string]audit.Factory{"file": audit.NewFileBackend},
		DisableMlock:  true, Logger: c.log, RedirectAddr: n.address, DefaultLeaseTTL: time.Hour, MaxLeaseTTL: 24 * time.Hour,
	})
	if err != nil {
		return nil, fmt.Errorf("make the core: %w", err)
	}
	return n, nil
}

func (n *node) serve() {
	handler := vaulthttp.Handler.Handler(&vault.HandlerProperties{
		Core: n.core, ListenerConfig: &configutil.Listener{MaxRequestSize: largest, CustomMaxJSONStringValueLength: largest}, DisablePrintableCheck: true,
	})
	go func() {
		n.served <- (&http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}).Serve(n.listen)
	}()
}

// standby waits until a node is active and puts another beside it.
func (c *cluster) standby(active *node, unsealKey string) (address string, err error) {
	key, err := base64.StdEncoding.DecodeString(unsealKey)
	if err != nil {
		return "", err
	}
	for end := time.Now().Add(becomesActive); ; time.Sleep(10 * time.Millisecond) {
		waits, err := active.core.Standby()
		if err != nil {
			return "", fmt.Errorf("look at the first node: %w", err)
		}
		if !waits {
			break
		}
		if time.Now().After(end) {
			return "", errors.New("the first node does not become active")
		}
	}
	n, err := c.node("127.0.0.1:0")
	if err != nil {
		return "", err
	}
	if _, err := n.core.Unseal(key); err != nil {
		return "", fmt.Errorf("unseal the standby: %w", err)
	}
	n.serve()
	return n.address, nil
}

func open(data string, log hclog.Logger) (physical.Backend, error) {
	if data == "" {
		return inmem.NewInmem(nil, log)
	}
	return file.NewFileBackend(map[string]string{"path": filepath.Join(data, "storage")}, log)
}

// unsealed initializes a new server, or unseals one that the folder remembers.
func unsealed(ctx context.Context, core *vault.Core, data string) (*started, error) {
	remembered := filepath.Join(data, "started.json")
	out := &started{}
	if data != "" {
		text, err := os.ReadFile(remembered)
		if err == nil {
			if err := json.Unmarshal(text, out); err != nil {
				return nil, fmt.Errorf("read %s: %w", remembered, err)
			}
			key, err := base64.StdEncoding.DecodeString(out.UnsealKey)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", remembered, err)
			}
			_, err = core.Unseal(key)
			return out, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	made, err := core.Initialize(ctx, &vault.InitParams{
		BarrierConfig: &vault.SealConfig{SecretShares: 1, SecretThreshold: 1}, RecoveryConfig: &vault.SealConfig{},
	})
	if err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	key := made.SecretShares[0]
	out.RootToken, out.UnsealKey = made.RootToken, base64.StdEncoding.EncodeToString(key) // before the core wipes it
	if data != "" {
		text, err := json.Marshal(out)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(remembered, text, 0o600); err != nil {
			return nil, err
		}
	}
	if _, err := core.Unseal(key); err != nil {
		return nil, fmt.Errorf("unseal: %w", err)
	}
	return out, nil
}

// registry names the plugins that are built in.
type registry struct{}

func (registry) factories(t consts.PluginType) map[string]logical.Factory {
	switch t {
	case consts.PluginTypeSecrets:
		return secrets
	case consts.PluginTypeCredential:
		return credentials
	default:
		return nil
	}
}

func (r registry) Contains(name string, t consts.PluginType) bool {
	_, ok := r.factories(t)[name]
	return ok
}

func (r registry) Get(name string, t consts.PluginType) (func() (any, error), bool) {
	f, ok := r.factories(t)[name]
	return func() (any, error) { return f, nil }, ok
}

func (r registry) Keys(t consts.PluginType) []string {
	var out []string
	for name := range r.factories(t) {
		out = append(out, name)
	}
	return out
}

func (r registry) DeprecationStatus(name string, t consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, r.Contains(name, t)
}

func (registry) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }
