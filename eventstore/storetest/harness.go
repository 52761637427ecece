package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Store is what the suite drives: the contract and the erasure of texts.
type Store interface {
	eventstore.Store
	EraseText(ctx context.Context, digest eventstore.Digest) error
}

// Harness is one empty store under test.
type Harness struct {
	Store Store
	// Replica is another store on the same data, as a second process would have.
	Replica Store
	Feed    eventstore.Feed
	// Settle returns when everything stored so far is in the feed.
	Settle func(ctx context.Context) error
	// Rows returns the rows of an inline table: by key, with the member "stream".
	Rows func(ctx context.Context, table string) (map[string]map[string]any, error)
	// FailNext makes the next append on Store fail, before or after it took effect.
	FailNext func(persisted bool)
}

// Tables are the inline tables that a harness opens its stores with.
func Tables() []eventstore.Table {
	return []eventstore.Table{
		{Name: "suite_status", Key: []string{"id"}, Columns: []string{"id", "status", "n", "at"}},
		{Name: "suite_lease", Key: []string{"pool", "slot"}, Columns: []string{"pool", "slot", "owner"}},
	}
}

// TablesDDL creates Tables in Postgres.
const TablesDDL = `
CREATE TABLE suite_status (stream text NOT NULL, id text PRIMARY KEY, status text NOT NULL CHECK (status <> ''), n bigint NOT NULL, at timestamptz);
CREATE TABLE suite_lease (stream text NOT NULL, pool text NOT NULL, slot bigint NOT NULL, owner text, PRIMARY KEY (pool, slot));`

// Actor is who all events of the suite are caused by.
var Actor = eventstore.Actor{Kind: "service", ID: "suite", Role: "operator", Auth: "internal"}

// Command prepares an append of n events as a command would: from what Load said.
func Command(l eventstore.Loaded, stream eventstore.StreamID, command uuid.UUID, n int) eventstore.Append {
	a := eventstore.Append{
		Stream: stream, Expected: l.Head.Version, PrevHash: l.Head.Hash, Now: l.Now,
		CommandID: command, CommandDigest: eventstore.Digest{1, 2, 3}, Actor: Actor,
		OperationID: "op-1", PlanNodeID: "node-1", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		StateVersion: 1,
	}
	for i := range n {
		version := l.Head.Version + int64(i) + 1
		a.Events = append(a.Events, eventstore.NewEvent{
			Type: "suite.happened", Schema: 1, Payload: fmt.Appendf(nil, `{"version": %d,  "note":"ä"}`, version),
		})
		a.State = fmt.Appendf(nil, `{"version":%d}`, version)
	}
	return a
}

// Do loads and appends n events under a fresh command id.
func Do(ctx context.Context, s eventstore.Store, stream eventstore.StreamID, n int, change ...func(*eventstore.Append)) ([]eventstore.Event, error) {
	command := uuid.New()
	l, err := s.Load(ctx, stream, command)
	if err != nil {
		return nil, err
	}
	a := Command(l, stream, command, n)
	for _, c := range change {
		c(&a)
	}
	return s.Append(ctx, a)
}

func must(t testing.TB, s eventstore.Store, stream eventstore.StreamID, n int, change ...func(*eventstore.Append)) []eventstore.Event {
	t.Helper()
	events, err := Do(t.Context(), s, stream, n, change...)
	if err != nil {
		t.Fatalf("append %d events to %s: %v", n, stream, err)
	}
	return events
}

func load(t testing.TB, s eventstore.Store, stream eventstore.StreamID, command uuid.UUID) eventstore.Loaded {
	t.Helper()
	l, err := s.Load(t.Context(), stream, command)
	if err != nil {
		t.Fatalf("load %s: %v", stream, err)
	}
	return l
}

func read(t testing.TB, s eventstore.Store, stream eventstore.StreamID) []eventstore.Event {
	t.Helper()
	events, err := s.ReadStream(t.Context(), stream, 0, 100_000)
	if err != nil {
		t.Fatalf("read %s: %v", stream, err)
	}
	return events
}

func row(members map[string]any) json.RawMessage {
	b, err := json.Marshal(members)
	if err != nil {
		panic(err) // a literal of the suite
	}
	return b
}
