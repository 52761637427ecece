package main

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
	"github.com/platform-core/execution-plane-service/examples/consumer/reader"
)

func read(version int64, prev, hash byte, findings ...ledger.Finding) reader.Read {
	return reader.Read{
		Record: ledger.Record{Topic: "execution.attempts", Partition: 2, Offset: 40 + version},
		Event: ledger.Event{Stream: "attempt/a", Version: version, Type: "t", Time: "2026-01-02T03:04:05.000006Z",
			Payload: []byte(`{"n":1}`), PrevHash: ledger.Digest{prev}, Hash: ledger.Digest{hash}},
		Fresh: true, Findings: findings,
	}
}

func TestText(t *testing.T) {
	var out bytes.Buffer
	p := &printer{out: &out, chain: ledger.NewChain()}
	gap := ledger.Finding{Kind: ledger.Gap, Topic: "execution.attempts", Partition: 2, Offset: 43, Stream: "attempt/a", Version: 3, Expected: "2", Got: "1", Detail: "it did not come"}
	for _, r := range []reader.Read{read(1, 0, 1), read(3, 2, 3, gap)} {
		if err := p.print(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.holes(); err == nil || err.Error() != "the chain of attempt/a is whole up to version 1; 1 events wait for version 2" {
		t.Errorf("holes: %v", err)
	}
	if err := p.print(t.Context(), read(2, 9, 2)); err != nil {
		t.Fatal(err)
	}
	want := `2026-01-02T03:04:05.000006Z execution.attempts/2@41 attempt/a 1 t
2026-01-02T03:04:05.000006Z execution.attempts/2@43 attempt/a 3 t
! gap at execution.attempts/2@43, attempt/a version 3: it did not come (expected 2, got 1)
2026-01-02T03:04:05.000006Z execution.attempts/2@42 attempt/a 2 t
! chain at execution.attempts/2@42, attempt/a version 2: attempt/a: version 2 does not follow version 1`
	if got, _, _ := strings.Cut(out.String(), ": prev_hash"); got != want {
		t.Error(cmp.Diff(want, got))
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	p := &printer{out: &out, json: true}
	if err := p.print(t.Context(), read(1, 0, 1)); err != nil {
		t.Fatal(err)
	}
	bad := reader.Read{Record: ledger.Record{Topic: "x"}, Findings: []ledger.Finding{{Kind: ledger.Malformed, Detail: "no id"}}}
	if err := p.print(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	for d := json.NewDecoder(&out); ; {
		var l map[string]any
		if err := d.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	if len(lines) != 2 || lines[0]["hash"] != "01"+strings.Repeat("0", 62) || lines[0]["event_id"] != "00000000-0000-0000-0000-000000000000" ||
		!cmp.Equal(lines[0]["payload"], map[string]any{"n": 1.0}) || lines[0]["findings"] != nil || lines[1]["event_id"] != nil || lines[1]["findings"] == nil {
		t.Errorf("printed %v", lines)
	}
}

func TestFlags(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct{ args, want string }{
		{"-o xml", `-o is text or json, not "xml"`},
		{"-ca " + none, "read -ca: open " + none},
		{"-ca main.go", "main.go holds no certificate"},
		{"-nonsense", "flag provided but not defined: -nonsense"},
		{"-brokers 127.0.0.1:1", "join the group execution-plane-consumer at [127.0.0.1:1]"},
	} {
		if err := run(t.Context(), strings.Fields(c.args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	var help bytes.Buffer
	if err := run(t.Context(), []string{"-h"}, io.Discard, &help); err != nil || !strings.Contains(help.String(), passwordVariable) {
		t.Errorf("%v: %s", err, help.String())
	}
}
