package sshaccess

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// KeyAgent lends keys to a tool, as ssh-agent does, without writing them to a file.
type KeyAgent struct {
	// Socket is for the tool's SSH_AUTH_SOCK.
	Socket string

	listener net.Listener
	dir      string
	mu       sync.Mutex
	conns    map[net.Conn]bool // nil once closed
	wg       sync.WaitGroup
}

// Agent serves the keys on a socket in a new folder of mode 0700 inside dir, the
// system's temporary folder where dir is empty. Keys without a private half are
// left out. The path of a socket is limited to some 100 bytes.
func Agent(dir string, keys ...Key) (*KeyAgent, error) {
	ring, ok := agent.NewKeyring().(agent.ExtendedAgent)
	if !ok {
		return nil, errors.New("lending a key: the keyring signs with no algorithm but the oldest")
	}
	for _, k := range keys {
		if k.raw == nil {
			continue
		}
		if err := ring.Add(agent.AddedKey{PrivateKey: k.raw, Certificate: k.cert}); err != nil {
			return nil, fmt.Errorf("lending a key: %w", err)
		}
		// The plain key beside its certificate, for hosts that know only that.
		if k.cert != nil {
			if err := ring.Add(agent.AddedKey{PrivateKey: k.raw}); err != nil {
				return nil, fmt.Errorf("lending a key: %w", err)
			}
		}
	}
	own, err := os.MkdirTemp(dir, "agent")
	if err != nil {
		return nil, fmt.Errorf("making the folder of the agent's socket: %w", err)
	}
	a := &KeyAgent{Socket: filepath.Join(own, "s"), dir: own, conns: map[net.Conn]bool{}}
	if a.listener, err = net.Listen("unix", a.Socket); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for the tool that uses the keys: %w", err), os.RemoveAll(own))
	}
	a.wg.Go(func() { a.accept(readOnly{ring}) })
	return a, nil
}

func (a *KeyAgent) accept(ring agent.ExtendedAgent) {
	for {
		conn, err := a.listener.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		if a.conns == nil {
			a.mu.Unlock()
			conn.Close()
			return
		}
		a.conns[conn] = true
		a.mu.Unlock()
		a.wg.Go(func() {
			// It ends when the tool hangs up, or in Close.
			_ = agent.ServeAgent(ring, conn)
			conn.Close()
			a.mu.Lock()
			delete(a.conns, conn)
			a.mu.Unlock()
		})
	}
}

// Close ends every connection and removes the socket.
func (a *KeyAgent) Close() error {
	err := a.listener.Close()
	a.mu.Lock()
	for c := range a.conns {
		c.Close()
	}
	a.conns = nil
	a.mu.Unlock()
	a.wg.Wait()
	return errors.Join(err, os.RemoveAll(a.dir))
}

// readOnly lets a tool list and use the keys, and not change which there are. It is
// an ExtendedAgent since only such a one signs with an RSA key as hosts of today want.
type readOnly struct{ agent.ExtendedAgent }

var errReadOnly = errors.New("the agent's keys cannot be changed")

func (readOnly) Add(agent.AddedKey) error   { return errReadOnly }
func (readOnly) Remove(ssh.PublicKey) error { return errReadOnly }
func (readOnly) RemoveAll() error           { return errReadOnly }
func (readOnly) Lock([]byte) error          { return errReadOnly }
func (readOnly) Unlock([]byte) error        { return errReadOnly }
