package projections

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// change is a change of a row before it is written out: a command writes it at
// once, a fold of a whole stream keeps the last one of each row.
type change struct {
	table  string
	row    any // a value of the table's row type; of a removal, one that holds the key
	delete bool
}

// set is a change that writes a row.
func set(table string, row any) change { return change{table: table, row: row} }

// remove is a change that deletes the row with this key.
func remove(table string, key any) change { return change{table: table, row: key, delete: true} }

func written(changes []change) []eventstore.Change {
	var out []eventstore.Change
	for _, c := range changes {
		out = append(out, eventstore.Change{Table: c.table, Row: rowJSON(c.table, c.row), Delete: c.delete})
	}
	return out
}

func rowJSON(table string, row any) json.RawMessage {
	b, err := json.Marshal(row)
	if err != nil {
		panic(fmt.Sprintf("row of %s: %v", table, err)) // row types hold nothing that cannot be marshalled
	}
	return b
}

// AttemptChanges gives the rows that change with an attempt's new events. before
// and after are the folded states around them.
func AttemptChanges(before, after domain.Attempt, events []domain.Event, at time.Time) []eventstore.Change {
	return written(attemptChanges(before, after, events, at))
}

// RunnerChanges gives the rows that change with a runner's new events.
func RunnerChanges(before, after domain.Runner, events []domain.Event, at time.Time) []eventstore.Change {
	return written(runnerChanges(before, after, events, at))
}

// TokenChanges gives the row of a token.
func TokenChanges(before, after domain.Token, events []domain.Event, at time.Time) []eventstore.Change {
	return written(tokenChanges(before, after, events, at))
}

// EnrolmentChanges gives the row of an enrolment.
func EnrolmentChanges(before, after domain.Enrolment, events []domain.Event, at time.Time) []eventstore.Change {
	return written(enrolmentChanges(before, after, events, at))
}

// BundleChanges gives the rows that change with new events of a bundle's stream.
func BundleChanges(before, after domain.Bundle, events []domain.Event, at time.Time) []eventstore.Change {
	return written(bundleChanges(before, after, events, at))
}

// CallbackChanges gives the row of a callback.
func CallbackChanges(before, after domain.Callback, events []domain.Event, at time.Time) []eventstore.Change {
	return written(callbackChanges(before, after, events, at))
}

// EndpointChanges gives the row of an endpoint that is stopped.
func EndpointChanges(before, after domain.Endpoint, events []domain.Event, at time.Time) []eventstore.Change {
	return written(endpointChanges(before, after, events, at))
}

// ParkedChanges gives the row of a key that the broker refuses.
func ParkedChanges(before, after domain.Parked, events []domain.Event, at time.Time) []eventstore.Change {
	return written(parkedChanges(before, after, events, at))
}

// AccessChanges gives no rows: reads stand in their streams alone.
func AccessChanges(_, _ domain.AccessLog, _ []domain.Event, _ time.Time) []eventstore.Change {
	return nil
}
