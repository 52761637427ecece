package ledger_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
)

// feed is some streams with heartbeats, merged in an order that keeps that of each.
func feed(t *rapid.T, n int) []ledger.Record {
	type stream struct {
		id   string
		prev ledger.Digest
		last map[string]int64
		next int64
	}
	streams := make([]*stream, n)
	for i := range streams {
		streams[i] = &stream{id: fmt.Sprintf("0a000000-0000-4000-8000-%012d", i), last: map[string]int64{}, next: 1}
	}
	var out []ledger.Record
	for _, at := range rapid.SliceOfN(rapid.IntRange(0, 2*n-1), 1, 40).Draw(t, "feed") {
		s, topic := streams[at/2], []string{"attempts", "heartbeats"}[at%2]
		v := vector{Stream: "attempt/" + s.id, Version: s.next, Type: "t." + topic, Schema: 1, Time: "2026-01-02T03:04:05.000006Z",
			EventID: fmt.Sprintf("00000000-0000-5000-%04d-%012d", at/2, s.next), CommandID: s.id, CommandDigest: strings.Repeat("a", 64),
			Payload: fmt.Sprint(at), PrevHash: s.prev.String(), Hash: strings.Repeat("0", 64)}
		r := with(v.record(), "ce_previntopic", fmt.Sprint(s.last[topic]))
		r.Topic = topic
		e, err := ledger.Parse(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, with(r, "ce_ledgerhash", e.Sum().String()))
		s.prev, s.last[topic], s.next = e.Sum(), s.next, s.next+1
	}
	return out
}

// However often a publisher falls back and publishes again, every event is fresh
// once, in order, nothing is found, and every chain is whole. Where one record is
// left out on every try, that is found.
func TestRandomRepetitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := feed(t, 3)
		var published []ledger.Record
		for at := 0; at < len(all); {
			upTo := rapid.IntRange(at+1, len(all)).Draw(t, "until")
			published = append(published, all[at:upTo]...)
			if at = upTo; at < len(all) && rapid.Bool().Draw(t, "crash") {
				at = rapid.IntRange(0, at).Draw(t, "checkpoint")
				upTo = min(len(all), max(at+1, upTo)) // it gets at least as far again
				published = append(published, all[at:upTo]...)
				at = upTo
			}
		}
		c, chain := ledger.New(), ledger.NewChain()
		last := map[string]int64{}
		fresh := 0
		for _, r := range published {
			e, is, findings := c.Take(r)
			if len(findings) > 0 {
				t.Fatalf("found %v", findings)
			}
			if !is {
				continue
			}
			fresh++
			if e.Version <= last[r.Topic+e.Stream] {
				t.Fatalf("%s version %d is out of order", e.Stream, e.Version)
			}
			last[r.Topic+e.Stream] = e.Version
			if err := chain.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		if fresh != len(all) || len(chain.Holes()) > 0 {
			t.Fatalf("%d of %d are fresh, holes %v", fresh, len(all), chain.Holes())
		}

		lost := all[rapid.IntRange(0, len(all)-1).Draw(t, "lost")]
		same := func(r ledger.Record) bool {
			return r.Topic == lost.Topic && r.Key == lost.Key && r.Offset == lost.Offset
		}
		later := slices.ContainsFunc(all, func(r ledger.Record) bool {
			return r.Topic == lost.Topic && r.Key == lost.Key && r.Offset > lost.Offset
		})
		c, found := ledger.New(), 0
		for _, r := range published {
			if !same(r) {
				_, _, findings := c.Take(r)
				found += len(findings)
			}
		}
		if (found == 1) != later || found > 1 {
			t.Fatalf("%d findings; something came after the lost record: %v", found, later)
		}
	})
}

// The example can be copied: it needs nothing of the service.
func TestImportsNothingOfTheService(t *testing.T) {
	for _, folder := range []string{".", "../reader", ".."} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", folder, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				if strings.Contains(i.Path.Value, "execution-plane-service/") && !strings.Contains(i.Path.Value, "/examples/consumer/") {
					t.Errorf("%s imports %s", file, i.Path.Value)
				}
			}
		}
	}
}
