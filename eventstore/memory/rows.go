package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Row is a row of an inline table.
type Row struct {
	Stream eventstore.StreamID
	JSON   json.RawMessage // as it came in the change
}

type table struct {
	def  eventstore.Table
	rows map[string]Row // by key
}

// write is a checked change that has not taken effect yet.
type write struct {
	table  *table
	key    string
	row    Row
	delete bool
}

func (w write) apply() {
	if w.delete {
		delete(w.table.rows, w.key)
		return
	}
	w.table.rows[w.key] = w.row
}

func (s *Store) applyRows(writes []write) {
	changes := make([]eventstore.Change, len(writes))
	for i, w := range writes {
		w.apply()
		changes[i] = eventstore.Change{Table: w.table.def.Name, Row: w.row.JSON, Delete: w.delete}
	}
	if s.opts.OnRows != nil && len(changes) > 0 {
		s.opts.OnRows(changes)
	}
}

// Rows returns a table's rows in the order of their keys' JSON text.
func (s *Store) Rows(name string) []Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[name]
	if t == nil {
		return nil
	}
	var out []Row
	for _, k := range slices.Sorted(maps.Keys(t.rows)) {
		r := t.rows[k]
		out = append(out, Row{Stream: r.Stream, JSON: bytes.Clone(r.JSON)})
	}
	return out
}

// planRows checks all changes of an append before any takes effect. The last
// change of a key counts; a row of another stream is never touched.
func (s *Store) planRows(a eventstore.Append) ([]write, error) {
	var out []write
	for _, c := range a.Rows {
		t := s.tables[c.Table]
		if t == nil {
			return nil, fmt.Errorf("append to %s: %w: no inline table %q; name it to Open", a.Stream, eventstore.ErrInvalid, c.Table)
		}
		key, err := t.key(c)
		if err != nil {
			return nil, fmt.Errorf("append to %s: %w: %w", a.Stream, eventstore.ErrInvalid, err)
		}
		old, exists := t.rows[key]
		foreign := exists && old.Stream != a.Stream
		switch {
		case foreign && c.Delete:
			continue
		case foreign:
			return nil, fmt.Errorf("append to %s: %w (table %s)", a.Stream, eventstore.ErrRowTaken, c.Table)
		}
		out = append(out, write{table: t, key: key, delete: c.Delete, row: Row{Stream: a.Stream, JSON: bytes.Clone(c.Row)}})
	}
	return out, nil
}

// key returns a change's key. A row must have exactly the table's columns, which
// Postgres does not check: there a missing member becomes NULL and a strange one
// is lost.
func (t *table) key(c eventstore.Change) (string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(c.Row, &members); err != nil {
		return "", fmt.Errorf("row of %s: %w", t.def.Name, err)
	}
	if !c.Delete {
		for m := range members {
			if !slices.Contains(t.def.Columns, m) {
				return "", fmt.Errorf("row of %s has the member %q, which is no column", t.def.Name, m)
			}
		}
		for _, col := range t.def.Columns {
			if _, ok := members[col]; !ok {
				return "", fmt.Errorf("row of %s lacks the column %q", t.def.Name, col)
			}
		}
	}
	parts := make([]string, len(t.def.Key))
	for i, k := range t.def.Key {
		v, ok := members[k]
		if !ok || string(v) == "null" {
			return "", fmt.Errorf("row of %s lacks the key %q", t.def.Name, k)
		}
		parts[i] = string(v)
	}
	return strings.Join(parts, "\x00"), nil
}
