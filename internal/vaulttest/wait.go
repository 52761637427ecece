package vaulttest

import (
	"encoding/base64"
	"encoding/hex"
	"time"
)

const waitDeadline = 30 * time.Second

// eventually polls another process, which sends no signal.
func (p *Process) eventually(what string, ok func() (bool, error)) {
	p.t.Helper()
	deadline := time.NewTimer(waitDeadline)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		done, err := ok()
		if done {
			return
		}
		select {
		case <-deadline.C:
			p.t.Fatalf("%s did not come within %s: %v", what, waitDeadline, err)
		case <-poll.C:
		}
	}
}

// Unseal unseals a sealed server and waits until it serves.
func (p *Process) Unseal() {
	p.t.Helper()
	key, err := base64.StdEncoding.DecodeString(p.UnsealKey)
	if err != nil {
		p.t.Fatal(err)
	}
	root := p.Root()
	if _, err := root.Sys().UnsealWithContext(p.t.Context(), hex.EncodeToString(key)); err != nil {
		p.t.Fatalf("unsealing: %v", err)
	}
	p.eventually("the unsealed server", func() (bool, error) {
		_, err := root.Auth().Token().LookupSelfWithContext(p.t.Context())
		return err == nil, err
	})
}

// upgraded waits until a KV version 2 mount has prepared itself.
func (p *Process) upgraded(mount string) {
	p.t.Helper()
	root := p.Root()
	p.eventually("the mount "+mount, func() (bool, error) {
		_, err := root.Logical().ReadWithContext(p.t.Context(), mount+"/config")
		return err == nil, err
	})
}
