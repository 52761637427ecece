package deliverytest

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Endpoint is one in the configuration of callbacks, with its receiver.
type Endpoint struct {
	Name         string
	Environments []string
	OnlyNamed    bool
	Timeout      time.Duration // 0: two seconds
	Peer         *Peer
}

// Wants says whether an endpoint is to get a result.
func (e Endpoint) Wants(environment, callbackRef string) bool {
	if callbackRef != "" {
		return callbackRef == e.Name
	}
	return !e.OnlyNamed && (len(e.Environments) == 0 || slices.Contains(e.Environments, environment))
}

// newSecret is one of Standard Webhooks.
func newSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// WriteEndpoints writes the configuration and its secrets into a folder and returns
// its path.
func WriteEndpoints(dir string, endpoints ...Endpoint) (string, error) {
	type entry struct {
		Name         string   `json:"name"`
		URL          string   `json:"url"`
		SecretFile   string   `json:"secret_file"`
		Environments []string `json:"environments,omitempty"`
		OnlyNamed    bool     `json:"only_named,omitempty"`
		Timeout      string   `json:"timeout"`
		Allow        []string `json:"allow"`
		AllowHTTP    bool     `json:"allow_http"`
	}
	var file struct {
		Endpoints []entry `json:"endpoints"`
	}
	for _, e := range endpoints {
		secret := e.Name + ".secret"
		if err := os.WriteFile(filepath.Join(dir, secret), []byte(e.Peer.secret+"\n"), 0o600); err != nil {
			return "", fmt.Errorf("write the secret of %s: %w", e.Name, err)
		}
		timeout := e.Timeout
		if timeout == 0 {
			timeout = 2 * time.Second
		}
		file.Endpoints = append(file.Endpoints, entry{e.Name, e.Peer.URL, secret, e.Environments, e.OnlyNamed, timeout.String(), []string{"loopback"}, true})
	}
	// JSON is YAML.
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "callbacks.yaml")
	return path, os.WriteFile(path, text, 0o600)
}
