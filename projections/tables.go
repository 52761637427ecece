package projections

import (
	"reflect"
	"time"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Tables describes every inline table: what Check compares and Rebuild writes.
func Tables() []eventstore.Table {
	return []eventstore.Table{
		table[attemptRow]("attempts", "attempt_id"),
		table[statusRow]("attempt_status", "attempt_id"),
		table[progressRow]("attempt_progress", "attempt_id"),
		table[leaseRow]("leases", "attempt_id"),
		table[leaseIndexRow]("lease_index", "lease_id"),
		table[runnerRow]("runners", "runner_id"),
		table[runnerStatusRow]("runner_status", "runner_id"),
		table[artifactRow]("artifacts", "attempt_id", "name"),
		table[logRow]("log_index", "attempt_id", "log_stream", "log_offset"),
		table[tokenRow]("tokens", "token_id"),
		table[enrolmentRow]("enrolments", "enrolment_id"),
		table[secretTokenRow]("secret_tokens", "attempt_id", "accessor"),
		table[secretRevocationRow]("secret_revocations", "attempt_id", "accessor", "runner_id"),
		table[findingRow]("scrub_findings", "attempt_id", "object_key"),
		table[callbackRow]("callbacks", "callback_id"),
		table[stoppedEndpointRow]("stopped_endpoints", "endpoint"),
		table[parkedRow]("forwarder_parked", "topic", "key"),
		table[putRow]("operation_artifacts", "artifact_id"),
		table[packageRow]("packages", "sha256"),
	}
}

// WrittenTables describes to a store every table that an append may write: the
// inline tables, and one of which it only deletes rows.
func WrittenTables() []eventstore.Table {
	return append(Tables(), eventstore.Table{Name: fingerprintsTable, Key: []string{"attempt_id"}, Columns: []string{"attempt_id"}})
}

// table derives a table's columns from its row type: one source for both.
func table[R any](name string, key ...string) eventstore.Table {
	t := reflect.TypeFor[R]()
	cols := make([]string, t.NumField())
	for i := range cols {
		cols[i] = t.Field(i).Tag.Get("json")
	}
	return eventstore.Table{Name: name, Key: key, Columns: cols}
}

// ptr is nil for the zero value: columns that may be absent are null, never "".
func ptr[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func timePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// list is never null.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func mapOf(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
