package projections

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// StreamFold folds one stream's events into the rows that the inline tables must
// hold for it, with the same functions that commands use.
type StreamFold struct {
	stream eventstore.StreamID
	apply  func(e domain.Event, at eventstore.Event) ([]eventstore.Change, error)
	state  func() any
	rows   map[string]map[string]json.RawMessage // table → key → row
}

// keyColumns are the key columns by table.
var keyColumns = sync.OnceValue(func() map[string][]string {
	keys := map[string][]string{}
	for _, t := range Tables() {
		keys[t.Name] = t.Key
	}
	return keys
})

// folding binds an aggregate's evolve and changes to one state.
func folding[S any](evolve func(S, domain.Event, time.Time) (S, error),
	changes func(before, after S, events []domain.Event, at time.Time) []eventstore.Change) (func(domain.Event, eventstore.Event) ([]eventstore.Change, error), func() any) {
	var state S
	apply := func(d domain.Event, e eventstore.Event) ([]eventstore.Change, error) {
		before := state
		after, err := evolve(before, d, e.Time)
		if err != nil {
			return nil, err
		}
		state = after
		return changes(before, after, []domain.Event{d}, e.Time), nil
	}
	return apply, func() any { return state }
}

// NewStreamFold begins the fold of a stream. A stream of an unknown kind is an
// error: this release cannot say what its rows should be.
func NewStreamFold(stream eventstore.StreamID) (*StreamFold, error) {
	f := &StreamFold{stream: stream, rows: map[string]map[string]json.RawMessage{}}
	kind, _, _ := strings.Cut(string(stream), "/")
	switch kind {
	case "attempt":
		f.apply, f.state = folding(domain.EvolveAttempt, AttemptChanges)
	case "runner":
		f.apply, f.state = folding(domain.EvolveRunner, RunnerChanges)
	case "token":
		f.apply, f.state = folding(domain.EvolveToken, TokenChanges)
	case "enrolment":
		f.apply, f.state = folding(domain.EvolveEnrolment, EnrolmentChanges)
	case "service":
		f.apply, f.state = folding(domain.EvolveService,
			func(_, _ domain.Service, _ []domain.Event, _ time.Time) []eventstore.Change { return nil })
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
	for _, c := range changes {
		key, err := f.key(c)
		if err != nil {
			return err
		}
		if f.rows[c.Table] == nil {
			f.rows[c.Table] = map[string]json.RawMessage{}
		}
		if c.Delete {
			delete(f.rows[c.Table], key)
		} else {
			f.rows[c.Table][key] = c.Row
		}
	}
	return nil
}

// key is the row's key as text, for the fold's own map. It reads no further than
// to the last key member: rows begin with their keys.
func (f *StreamFold) key(c eventstore.Change) (string, error) {
	keys := keyColumns()[c.Table]
	parts := make([]string, len(keys))
	d := json.NewDecoder(bytes.NewReader(c.Row))
	_, err := d.Token() // {
	for found := 0; err == nil && found < len(keys) && d.More(); {
		var name json.Token
		var value json.RawMessage
		if name, err = d.Token(); err == nil {
			err = d.Decode(&value)
		}
		if i := slices.Index(keys, fmt.Sprint(name)); i >= 0 {
			parts[i] = string(value)
			found++
		}
	}
	if err != nil {
		return "", fmt.Errorf("row of %s: %w", c.Table, err)
	}
	return strings.Join(parts, "\x00"), nil
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
	out := make([]json.RawMessage, 0, len(f.rows[table]))
	for _, r := range f.rows[table] {
		out = append(out, r)
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
	case "service":
		return domain.ServiceStateVersion
	}
	return 0
}
