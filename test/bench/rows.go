package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// What a command of the service appends, as a rule: one event of some 300 bytes,
// the stream's head with its folded state of some 700, and one row of a read
// model. attempt_status has three indexes, events four, heads one.

var (
	benchPayload = []byte(`{"epoch":1,"lease_until":"2026-01-01T00:00:00Z","phase":"probing","done":1,"total":2,"message":"` + strings.Repeat("m", 190) + `"}`)
	benchState   = []byte(`{"phase":"running","spec":"` + strings.Repeat("s", 660) + `"}`)
	benchActor   = eventstore.Actor{Kind: "runner", ID: "0198c0de-0000-7000-8000-000000000000", Role: "runner", Auth: "token"}
	benchNode    = "0198c0de-0000-7000-8000-000000000001"
)

const benchType = "execution.attempt.progress"

// statusRow is one row of attempt_status.
func statusRow(id uuid.UUID, epoch int64) json.RawMessage {
	return fmt.Appendf(nil, `{"attempt_id":%q,"phase":"running","status":"running","category":null,"failure_code":null,"stop_reason":null,`+
		`"runner_id":"0198c0de-0000-7000-8000-000000000000","epoch":%d,"started_at":"2026-01-01T00:00:00Z","finished_at":null,`+
		`"due_at":"2026-01-01T01:00:00Z","not_before":null,"sealable":false,"bundle_state":null}`, id, epoch)
}

// command is an append that opens the stream of id, or goes on after head.
func command(id uuid.UUID, head eventstore.Head) eventstore.Append {
	return eventstore.Append{
		Stream: eventstore.StreamID("attempt/" + id.String()), Expected: head.Version, PrevHash: head.Hash, Now: time.Now(),
		CommandID: uuid.New(), CommandDigest: sha256.Sum256(id[:]), Actor: benchActor, OperationID: benchNode, PlanNodeID: "check",
		Events: []eventstore.NewEvent{{Type: benchType, Schema: 1, Payload: benchPayload}}, State: benchState, StateVersion: 1,
		Rows: []eventstore.Change{{Table: "attempt_status", Row: statusRow(id, head.Version)}},
	}
}

var (
	eventColumns = []string{"version", "time", "event_id", "command_id", "cause", "schema", "stream", "type", "command_digest",
		"actor_kind", "actor_id", "actor_role", "actor_auth", "operation_id", "plan_node_id", "traceparent", "prev_hash", "hash", "payload"}
	headColumns   = []string{"stream", "version", "base_version", "time", "state_version", "closed", "hash", "state"}
	statusColumns = []string{"attempt_id", "stream", "phase", "status", "runner_id", "epoch", "started_at", "due_at", "sealable"}
)

var benchTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// eventOf, headOf and statusOf give the values that such an append stores, for
// those who write them without the store. A digest is any 32 bytes to them.
func eventOf(id uuid.UUID, version int64) []any {
	digest := sha256.Sum256(id[:])
	return []any{version, time.Now(), uuid.New(), uuid.New(), uuid.Nil, int32(1), "attempt/" + id.String(), benchType, digest[:],
		benchActor.Kind, benchActor.ID, benchActor.Role, benchActor.Auth, benchNode, "check", "", digest[:], digest[:], benchPayload}
}

func headOf(id uuid.UUID, version int64) []any {
	digest := sha256.Sum256(id[:])
	return []any{"attempt/" + id.String(), version, version - 1, time.Now(), int32(1), false, digest[:], benchState}
}

func statusOf(id uuid.UUID, epoch int64) []any {
	return []any{id, "attempt/" + id.String(), "running", "running", uuid.UUID{1}, epoch, benchTime, benchTime.Add(time.Hour), false}
}

func insertSQL(table string, columns []string) string {
	values := make([]string, len(columns))
	for i := range columns {
		values[i] = fmt.Sprintf("$%d", i+1)
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(columns, ", "), strings.Join(values, ", "))
}

var (
	insertEvent  = insertSQL("events", eventColumns)
	insertHead   = insertSQL("stream_heads", headColumns)
	insertStatus = insertSQL("attempt_status", statusColumns)
)

const (
	updateHead   = `UPDATE stream_heads SET version = $2, base_version = $3, time = $4, state_version = $5, closed = $6, hash = $7, state = $8 WHERE stream = $1`
	updateStatus = `UPDATE attempt_status SET stream = $2, phase = $3, status = $4, runner_id = $5, epoch = $6, started_at = $7, due_at = $8, sealable = $9 WHERE attempt_id = $1`
)

// bare writes the rows of one append as the fastest client would that checks
// nothing: prepared statements in one round trip and one transaction.
func bare(ctx context.Context, db interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}, id uuid.UUID, version int64) error {
	b := &pgx.Batch{}
	b.Queue(insertEvent, eventOf(id, version)...)
	if version == 1 {
		b.Queue(insertHead, headOf(id, version)...)
		b.Queue(insertStatus, statusOf(id, version)...)
	} else {
		b.Queue(updateHead, headOf(id, version)...)
		b.Queue(updateStatus, statusOf(id, version)...)
	}
	return db.SendBatch(ctx, b).Close()
}
