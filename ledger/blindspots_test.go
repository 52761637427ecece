package ledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/ledger"
	"github.com/platform-core/execution-plane-service/projections"
)

// wants fails unless the report's faults are exactly these, as "stream kind version".
func (b *book) wants(faults ...ledger.Fault) {
	b.t.Helper()
	r := b.verify()
	if len(r.Differences) > 0 {
		b.t.Errorf("differences %v", r.Differences)
	}
	if len(r.Faults) != len(faults) {
		b.t.Fatalf("faults %v, want %v", r.Faults, faults)
	}
	for i, f := range r.Faults {
		f.Detail = ""
		if f != faults[i] {
			b.t.Errorf("fault %+v, want %+v", r.Faults[i], faults[i])
		}
	}
}

func TestTextsAreVerified(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	if r := b.verify(); r.Texts != 4 { // two JobSpecs and two reasons
		t.Errorf("%d texts, want 4", r.Texts)
	}
	b.exec("ALTER TABLE event_texts DISABLE TRIGGER USER")
	const (
		spec   = "SELECT decode(spec_text, 'hex') FROM attempts WHERE stream = $1"
		reason = "SELECT decode(convert_from(payload, 'UTF8')::jsonb->>'reason_text', 'hex') FROM events WHERE stream = $1 AND version = 9"
	)
	b.exec(`UPDATE event_texts SET bytes = convert_to(replace(convert_from(bytes, 'UTF8'), '127.0.0.1', '192.0.2.99'), 'UTF8') WHERE digest = (`+spec+`)`, b.stream)
	b.wants(ledger.Fault{Stream: b.stream, Version: 1, Kind: "text"})
	b.exec(`DELETE FROM event_texts WHERE digest = (`+spec+`)`, b.stream)
	b.wants(ledger.Fault{Stream: b.stream, Version: 1, Kind: "text"})
	b.exec(`DELETE FROM event_texts WHERE digest = (`+reason+`)`, b.stream)
	b.wants(ledger.Fault{Stream: b.stream, Version: 1, Kind: "text"}, ledger.Fault{Stream: b.stream, Version: 9, Kind: "text"})
}

func TestAnErasedTextIsNoFault(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	var digest []byte
	if err := b.pool.QueryRow(t.Context(), "SELECT decode(spec_text, 'hex') FROM attempts WHERE stream = $1", b.stream).Scan(&digest); err != nil {
		t.Fatal(err)
	}
	if err := b.store.EraseText(t.Context(), eventstore.Digest(digest)); err != nil {
		t.Fatal(err)
	}
	b.wants()
	if r := b.verify(); r.Texts != 3 {
		t.Errorf("%d texts, want 3", r.Texts)
	}
}

// feed does what a sequencer does, for all events.
func feed(t testing.TB, pool *projections.Pool) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO feed (seq, position) SELECT row_number() OVER (ORDER BY position), position FROM events`,
		`INSERT INTO sequencer_ticks (tick, seq, last_position, at, lo)
			SELECT (SELECT max(tick) + 1 FROM sequencer_ticks), count(*), max(position), clock_timestamp(), pg_current_snapshot() FROM events`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheFeedIsVerified(t *testing.T) {
	const at = "(SELECT seq FROM feed JOIN events USING (position) WHERE stream = $1 AND version = $2)"
	feedFault := ledger.Fault{Kind: "feed"}
	for name, c := range map[string]struct {
		do    func(b *book)
		wants func(b *book) []ledger.Fault
	}{
		"whole": {func(*book) {}, func(*book) []ledger.Fault { return nil }},
		"an event that no tick has seen": {
			func(b *book) {
				b.exec("UPDATE sequencer_ticks SET lo = '1:1:', seq = seq - 1 WHERE tick = 2")
				b.exec("DELETE FROM feed WHERE seq = "+at, b.stream, 9)
			},
			func(*book) []ledger.Fault { return nil },
		},
		"the lost event": {
			func(b *book) { b.exec("DELETE FROM feed WHERE seq = "+at, b.stream, 9) },
			func(b *book) []ledger.Fault {
				return []ledger.Fault{{Stream: b.stream, Version: 9, Kind: "feed"}, feedFault}
			},
		},
		"an event lost in a restore": {
			func(b *book) {
				b.exec("UPDATE sequencer SET floor = 1000, system_identifier = 1")
				b.exec("DELETE FROM feed WHERE seq = "+at, b.stream, 9)
			},
			func(b *book) []ledger.Fault {
				return []ledger.Fault{{Stream: b.stream, Version: 9, Kind: "feed"}, feedFault}
			},
		},
		"versions out of order": {
			func(b *book) {
				var x, y int64
				if err := b.pool.QueryRow(b.t.Context(), "SELECT position, (SELECT position FROM events WHERE stream = $1 AND version = 5) FROM events WHERE stream = $1 AND version = 4", b.stream).Scan(&x, &y); err != nil {
					b.t.Fatal(err)
				}
				b.exec("UPDATE feed SET position = $2 + $1 + 1000 - position WHERE position IN ($1, $2)", x, y)
				b.exec("UPDATE feed SET position = position - 1000 WHERE position > 1000")
			},
			func(b *book) []ledger.Fault { return []ledger.Fault{{Stream: b.stream, Version: 5, Kind: "feed"}} },
		},
		"an entry without an event": {
			func(b *book) { b.exec("INSERT INTO feed SELECT max(seq) + 1, 1000000 FROM feed") },
			func(*book) []ledger.Fault { return []ledger.Fault{feedFault} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook(t)
			b.exec("ALTER TABLE sequencer_ticks DISABLE TRIGGER USER")
			feed(t, b.pool)
			c.do(b)
			b.wants(c.wants(b)...)
		})
	}
}

// The first entries of the feed are missing: no hole between the others shows it.
func TestAFeedWithoutItsBeginning(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	feed(t, b.pool)
	b.exec("DELETE FROM feed WHERE seq <= 2")
	r := b.verify()
	if n := len(r.Faults); n == 0 || r.Faults[n-1].Kind != "feed" || !strings.Contains(r.Faults[n-1].Detail, "2 numbers are missing") {
		t.Errorf("%v", r.Faults)
	}
}

// rehash makes every hash of the stream fit its events again.
func (b *book) rehash() {
	b.t.Helper()
	var prev eventstore.Digest
	for _, e := range b.events() {
		hash := eventstore.HashEvent(prev, e.Envelope, e.Payload)
		b.exec("UPDATE events SET prev_hash = $3, hash = $4 WHERE stream = $1 AND version = $2", b.stream, e.Version, prev[:], hash[:])
		prev = hash
	}
	b.exec("UPDATE stream_heads SET hash = $2 WHERE stream = $1", b.stream, prev[:])
}

func TestEventIDsFollowFromTheirCommands(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.exec("UPDATE events SET event_id = $2 WHERE stream = $1 AND version = 5", b.stream, uuid.New())
	b.rehash()
	b.wants(ledger.Fault{Stream: b.stream, Version: 5, Kind: "envelope"})
}

func TestNothingFollowsATerminalEvent(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	events := b.events()
	end := domain.Cancelled{Ended: domain.Ended{Category: domain.CategoryUnknown, FailureCode: domain.CodeCancelled, FinishedAt: time.Unix(1, 0).UTC()}}
	name, schema, payload, err := domain.EncodeEvent(end)
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.store.Load(t.Context(), b.stream, uuid.New())
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := eventstore.Seal(eventstore.Append{Stream: b.stream, Expected: l.Head.Version, PrevHash: l.Head.Hash, Now: l.Now, CommandID: uuid.New(),
		Actor: events[0].Actor, OperationID: events[0].OperationID, PlanNodeID: events[0].PlanNodeID, StateVersion: 1, State: []byte("{}"),
		Events: []eventstore.NewEvent{{Type: name, Schema: schema, Payload: payload}, {Type: name, Schema: schema, Payload: payload}}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := projections.NewStreamFold(b.stream)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range append(events, sealed...) {
		if err := f.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	state, err := f.State()
	if err != nil {
		t.Fatal(err)
	}
	insert(t, b.pool, sealed)
	if err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error { return b.rewriteHead(t.Context(), tx, sealed[1], state) }); err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE stream_heads SET closed = true WHERE stream = $1", b.stream)
	for _, table := range projections.Tables() {
		if _, err := projections.Rebuild(t.Context(), b.pool, table.Name); err != nil {
			t.Fatal(err)
		}
	}
	b.wants(ledger.Fault{Stream: b.stream, Version: 11, Kind: "closed"})
}

// insert writes events past the append statement.
func insert(t testing.TB, pool *projections.Pool, events []eventstore.Event) {
	t.Helper()
	_, err := pool.CopyFrom(t.Context(), pgx.Identifier{"events"},
		[]string{"version", "time", "event_id", "command_id", "cause", "schema", "stream", "type", "command_digest", "actor_kind", "actor_id", "actor_role",
			"actor_auth", "operation_id", "plan_node_id", "traceparent", "prev_hash", "hash", "payload"},
		pgx.CopyFromSlice(len(events), func(i int) ([]any, error) {
			e := events[i]
			return []any{e.Version, e.Time, e.EventID, e.CommandID, e.Cause, e.Schema, string(e.Stream), e.Type, e.CommandDigest[:], e.Actor.Kind, e.Actor.ID, e.Actor.Role,
				e.Actor.Auth, e.OperationID, e.PlanNodeID, e.TraceParent, e.PrevHash[:], e.Hash[:], e.Payload}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
}

// One event that cannot be read any more hides no other fault, before or behind it.
func TestVerificationGoesOn(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	other := "stream <> $1 AND stream LIKE 'attempt/%'"
	b.exec("UPDATE events SET payload = '\\x00' WHERE stream = $1 AND version = 3", b.stream)
	b.exec("UPDATE events SET type = 'execution.attempt.unheard_of' WHERE "+other+" AND version = 5", b.stream)
	b.exec("INSERT INTO events SELECT nextval('event_position'), tx_id, version, time, gen_random_uuid(), command_id, cause, schema, 'unknown/kind', type, command_digest, actor_kind, actor_id, actor_role, actor_auth, operation_id, plan_node_id, traceparent, prev_hash, hash, payload FROM events WHERE stream = $1 AND version = 1", b.stream)
	got := map[string]bool{}
	r := b.verify()
	for _, f := range r.Faults {
		kind, _, _ := strings.Cut(string(f.Stream), "/")
		if f.Stream == b.stream {
			kind = "this"
		}
		got[kind+" "+f.Kind] = true
	}
	for _, want := range []string{"this chain", "this payload", "attempt chain", "attempt payload", "unknown chain", "unknown payload", "unknown head"} {
		if !got[want] {
			t.Errorf("no fault %q among %v", want, r.Faults)
		}
	}
	if r.Events != 19 || r.Streams != 3 || len(r.Differences) != 0 {
		t.Errorf("%+v", r)
	}
}
