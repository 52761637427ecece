package masker

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
)

// LongestValue is the most bytes a secret may have.
const LongestValue = 1 << 20

// Why a value is refused. No error holds any part of the value.
var (
	ErrEmpty    = errors.New("masker: the secret is empty")
	ErrBlank    = errors.New("masker: the secret is white space only")
	ErrTooShort = fmt.Errorf("masker: the secret is shorter than %d bytes and cannot be masked safely", shortest)
	ErrTooLong  = fmt.Errorf("masker: the secret is longer than %d bytes", LongestValue)
	// ErrFixed is returned by Add on the Set of Empty.
	ErrFixed = errors.New("masker: nothing can be added to the empty set")
)

// Set is what has to be masked. It is safe for concurrent use, and secrets can be
// added while Writers use it. Close it when the attempt is over.
type Set struct {
	// One pointer away, so that no print of a Set or of what holds one gets there.
	shared *shared
}

type shared struct {
	built atomic.Pointer[automaton]

	mu       sync.Mutex
	closed   bool
	secrets  []secretInfo
	values   [][]byte // whole values and their fields, for the choice of the marks
	patterns []pattern
	prints   printBudget
}

var empty = &Set{}

// Empty returns the Set that masks nothing, to which nothing can be added.
func Empty() *Set { return empty }

// New returns a Set to which secrets can be added.
func New() *Set { return &Set{shared: &shared{prints: printBudget{left: MostPrints}}} }

// Report tells what Add made of one secret. It holds no part of the value.
type Report struct {
	Name     string
	Patterns int
	// Weak is why the value as a whole is easy to guess or common in ordinary
	// text, a user name or a word with a digit for example; empty otherwise. It is
	// masked all the same, but has no fingerprints: the scan would find it in every
	// manifest.
	Weak string
	// Rejected are the parts that are not patterns of their own.
	Rejected []Rejection
}

// Rejection names a part of a secret by its field path or line number.
type Rejection struct {
	What   string
	Reason string
}

// Add makes a secret and its parts part of the Set. Open Writers mask it from
// their next Write on. name is public: it stands in the mark, in Counts and in the
// report. The value is copied. A refused value is ErrEmpty, ErrBlank, ErrTooShort,
// ErrTooLong, ErrFixed or ErrSetClosed, and the Set is as before.
func (s *Set) Add(name string, value []byte) (Report, error) {
	report := Report{Name: publicName(name)}
	if s.shared == nil {
		return report, ErrFixed
	}
	if err := checkValue(value); err != nil {
		return report, err
	}
	parts, rejected := split(value)
	report.Rejected, report.Weak = rejected, common(value)
	for i := range parts {
		parts[i].print = max(parts[i].print, printOf(parts[i].value))
	}

	h := s.shared
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		wipeParts(parts)
		return report, ErrSetClosed
	}
	v := newVariants(int32(len(h.secrets)))
	v.size = len(value)
	for _, p := range parts {
		v.add(p)
		h.values = append(h.values, p.value)
	}
	h.prints.plan(parts, v.patterns)
	report.Patterns = len(v.patterns)
	h.secrets = append(h.secrets, secretInfo{name: report.Name})
	h.patterns = append(h.patterns, v.patterns...)
	h.built.Store(nil)
	return report, nil
}

func checkValue(value []byte) error {
	switch {
	case len(value) == 0:
		return ErrEmpty
	case len(value) > LongestValue:
		return ErrTooLong
	}
	blank := !slices.ContainsFunc(value, func(b byte) bool { return !isBlank(rune(b)) && b != 0 })
	switch {
	case blank:
		return ErrBlank
	case len(value) < shortest:
		return ErrTooShort
	}
	if c, _ := compact(value); len(trimBlank(value)) < shortest && len(c) < shortest {
		return ErrTooShort
	}
	return nil
}

// automaton returns the automaton of all secrets, nil when there are none. It is
// built when it is first needed after an Add.
func (s *Set) automaton() (*automaton, error) {
	h := s.shared
	if h == nil {
		return nil, nil
	}
	if a := h.built.Load(); a != nil {
		return a, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrSetClosed
	}
	if a := h.built.Load(); a != nil || len(h.secrets) == 0 {
		return a, nil
	}
	a := buildAutomaton(h.patterns, slices.Clone(h.secrets))
	chooseMarks(a, h.values)
	h.built.Store(a)
	return a, nil
}

// Bytes returns b, a text that is complete, with every value of the set masked.
// The result may share memory with b, which the caller must not change while it
// uses the result. Of a closed Set nothing comes out but a mark.
func (s *Set) Bytes(b []byte) []byte {
	a, err := s.automaton()
	switch {
	case len(b) == 0 || a == nil && err == nil:
		return b
	case err != nil:
		return []byte(anonymous[0])
	}
	m := newMasking(a)
	m.buf = append(make([]byte, 0, len(b)), b...)
	out := slices.Clone(m.last())
	m.wipe()
	return out
}

// String is Bytes for a string.
func (s *Set) String(text string) string {
	if s.shared == nil {
		return text
	}
	return string(s.Bytes([]byte(text)))
}

// Close overwrites the values. Writers that are still open fail with ErrSetClosed,
// and so does Add.
func (s *Set) Close() error {
	h := s.shared
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for i := range h.patterns {
		clear(h.patterns[i].text)
		clear(h.patterns[i].raw)
	}
	for _, v := range h.values {
		clear(v)
	}
	// The automaton may be in use for the rest of a Write. It is left to the
	// collector.
	h.built.Store(nil)
	h.patterns, h.values, h.secrets, h.prints.plans = nil, nil, nil, nil
	return nil
}

// Format keeps the values out of every print.
func (s Set) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "masker.Set") }

// MarshalText keeps the values out of JSON and every other text encoding.
func (s Set) MarshalText() ([]byte, error) { return []byte("masker.Set"), nil }

// LogValue keeps the values out of logs.
func (s Set) LogValue() slog.Value { return slog.StringValue("masker.Set") }
