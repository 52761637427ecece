package projections

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// StreamFold folds one stream's events into the rows that the inline tables must
// hold for it, with the same functions that commands use. It holds the rows as
// values: what a row is compared with decides whether it is ever written out.
type StreamFold struct {
	stream eventstore.StreamID
	apply  func(e domain.Event, at eventstore.Event) ([]change, error)
	state  func() any
	last   func() []change           // rows that the state alone gives; nil: none
	rows   map[string]map[string]any // table → key → row
	folded bool                      // an event was applied
	told   []foldedRow               // what all gives, until the next event
}

// foldedRow is a row that a stream's events give.
type foldedRow struct {
	table    string
	row      any
	spelling string // see spell; "" where it has none
}

// folding binds an aggregate's evolve and changes to one state.
func folding[S any](f *StreamFold, evolve func(S, domain.Event, time.Time) (S, error),
	changes func(before, after S, events []domain.Event, at time.Time) []change) {
	var state S
	f.apply = func(d domain.Event, e eventstore.Event) ([]change, error) {
		before := state
		after, err := evolve(before, d, e.Time)
		if err != nil {
			return nil, err
		}
		state = after
		return changes(before, after, []domain.Event{d}, e.Time), nil
	}
	f.state = func() any { return state }
}

// foldingAttempt is folding for attempts, the many. The rows that follow from the
// state are made of the last state, not at every event; a damaged stream that
// goes on under another id leaves behind those of the id before.
func foldingAttempt(f *StreamFold) {
	var state domain.Attempt
	f.apply = func(d domain.Event, e eventstore.Event) (out []change, err error) {
		after, err := domain.EvolveAttempt(state, d, e.Time)
		if err != nil {
			return nil, err
		}
		if f.folded && state.ID != after.ID {
			out = attemptStateChanges(state)
		}
		state = after
		return append(out, attemptEventChanges(after.ID, d, e.Time)...), nil
	}
	f.state = func() any { return state }
	f.last = func() []change { return attemptStateChanges(state) }
}

// NewStreamFold begins the fold of a stream. A stream of an unknown kind is an
// error: this release cannot say what its rows should be.
func NewStreamFold(stream eventstore.StreamID) (*StreamFold, error) {
	f := &StreamFold{stream: stream, rows: map[string]map[string]any{}}
	kind, _, _ := strings.Cut(string(stream), "/")
	switch kind {
	case "attempt":
		foldingAttempt(f)
	case "runner":
		folding(f, domain.EvolveRunner, runnerChanges)
	case "token":
		folding(f, domain.EvolveToken, tokenChanges)
	case "enrolment":
		folding(f, domain.EvolveEnrolment, enrolmentChanges)
	case "bundle":
		folding(f, domain.EvolveBundle, bundleChanges)
	case "callback":
		folding(f, domain.EvolveCallback, callbackChanges)
	case "endpoint":
		folding(f, domain.EvolveEndpoint, endpointChanges)
	case "forwarder":
		folding(f, domain.EvolveParked, parkedChanges)
	case "operation":
		folding(f, domain.EvolveOperation, operationChanges)
	case "package":
		folding(f, domain.EvolvePackage, packageChanges)
	case "access":
		folding(f, domain.EvolveAccess, func(_, _ domain.AccessLog, _ []domain.Event, _ time.Time) []change { return nil })
	case "service":
		folding(f, domain.EvolveService, func(_, _ domain.Service, _ []domain.Event, _ time.Time) []change { return nil })
	default:
		return nil, fmt.Errorf("stream %s is of a kind that this release does not know; upgrade before checking", stream)
	}
	return f, nil
}

// Add folds the stream's next event.
func (f *StreamFold) Add(e eventstore.Event) error {
	d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
	if err != nil {
		return fmt.Errorf("fold %s version %d: %w", e.Stream, e.Version, err)
	}
	return f.Apply(d, e)
}

// Apply is Add for a caller that has decoded the event.
func (f *StreamFold) Apply(d domain.Event, e eventstore.Event) error {
	changes, err := f.apply(d, e)
	if err != nil {
		return fmt.Errorf("fold %s version %d: %w", e.Stream, e.Version, err)
	}
	f.folded, f.told = true, nil
	for _, c := range changes {
		key := keyOf(c)
		if f.rows[c.table] == nil {
			f.rows[c.table] = map[string]any{}
		}
		if c.delete {
			delete(f.rows[c.table], key)
		} else {
			f.rows[c.table][key] = c.row
		}
	}
	return nil
}

// Settle makes ready what a comparison asks for, so that this can be done beside
// other folds. It changes nothing that can be seen.
func (f *StreamFold) Settle() {
	if f.told == nil {
		f.told = f.all()
	}
}

// all are the rows that the tables must hold for the stream.
func (f *StreamFold) all() []foldedRow {
	out := make([]foldedRow, 0, 8)
	add := func(table string, row any) {
		out = append(out, foldedRow{table, row, spell(row)})
	}
	var last []change
	if f.last != nil && f.folded {
		last = f.last()
	}
	for _, c := range last {
		add(c.table, c.row)
	}
	for table, rows := range f.rows {
		newer := slices.IndexFunc(last, func(c change) bool { return c.table == table })
		for key, row := range rows {
			if newer < 0 || key != keyOf(last[newer]) {
				add(table, row)
			}
		}
	}
	return out
}

// State is the folded state as a head would carry it.
func (f *StreamFold) State() (json.RawMessage, error) {
	b, err := json.Marshal(f.state())
	if err != nil {
		return nil, fmt.Errorf("encode the folded state of %s: %w", f.stream, err)
	}
	return b, nil
}

// Rows returns the rows that a table must hold for this stream.
func (f *StreamFold) Rows(table string) []json.RawMessage {
	f.Settle()
	out := []json.RawMessage{}
	for _, r := range f.told {
		if r.table == table {
			out = append(out, rowJSON(table, r.row))
		}
	}
	return out
}

// StateVersion is the version of the folded state that this release writes for
// a stream; 0 for a kind it does not know.
func StateVersion(stream eventstore.StreamID) int {
	kind, _, _ := strings.Cut(string(stream), "/")
	switch kind {
	case "attempt":
		return domain.AttemptStateVersion
	case "runner":
		return domain.RunnerStateVersion
	case "token", "enrolment":
		return domain.TokenStateVersion
	case "bundle":
		return domain.BundleStateVersion
	case "callback", "endpoint":
		return domain.CallbackStateVersion
	case "forwarder":
		return domain.ParkedStateVersion
	case "operation":
		return domain.OperationStateVersion
	case "package":
		return domain.PackageStateVersion
	case "access":
		return domain.AccessStateVersion
	case "service":
		return domain.ServiceStateVersion
	}
	return 0
}
