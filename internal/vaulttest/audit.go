package vaulttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/hashicorp/vault/api"
)

// Entry is one answered request of the audit log. Values stand in it as keyed
// hashes, accessors as they are.
type Entry struct {
	Operation string // read, update, list, ...
	Path      string
	Accessor  string // of the token that asked
	Attempt   string // from the token's metadata
	Failed    bool
}

// Audit turns the audit log on.
func (p *Process) Audit() {
	p.t.Helper()
	err := p.Root().Sys().EnableAuditWithOptionsWithContext(p.t.Context(), "file", &api.EnableAuditOptions{
		Type: "file", Options: map[string]string{"file_path": p.file("audit.log"), "hmac_accessor": "false"},
	})
	if err != nil {
		p.t.Fatalf("turning the audit log on: %v", err)
	}
}

// AuditText is the audit log as it stands.
func (p *Process) AuditText() []byte {
	p.t.Helper()
	text, err := os.ReadFile(p.file("audit.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// Answered are the answered requests for a path, in their order. Vault writes
// each before the client has its answer.
func (p *Process) Answered(path string) []Entry {
	p.t.Helper()
	dec := json.NewDecoder(bytes.NewReader(p.AuditText()))
	var out []Entry
	for {
		var line struct {
			Type string `json:"type"`
			Auth struct {
				Accessor string            `json:"accessor"`
				Metadata map[string]string `json:"metadata"`
			} `json:"auth"`
			Request struct {
				Operation string `json:"operation"`
				Path      string `json:"path"`
			} `json:"request"`
			Error string `json:"error"`
		}
		err := dec.Decode(&line)
		if errors.Is(err, io.EOF) {
			return slices.Clip(out)
		}
		if err != nil {
			p.t.Fatalf("reading the audit log: %v", err)
		}
		if line.Type == "response" && line.Request.Path == path {
			out = append(out, Entry{
				Operation: line.Request.Operation, Path: path, Accessor: line.Auth.Accessor,
				Attempt: line.Auth.Metadata["attempt_id"], Failed: line.Error != "",
			})
		}
	}
}
