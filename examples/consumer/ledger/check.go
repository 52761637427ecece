package ledger

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
)

// Check holds the records of one or more topics against what they must be. One
// goroutine may use it. The zero value is not ready: see New.
type Check struct {
	streams map[Place]Seen
	middle  map[string]bool // topics that are not read from their beginning
	changed map[Place]bool
}

// Place is a stream in a topic: there its records come in order.
type Place struct{ Topic, Stream string }

// Seen is what is remembered of a stream in a topic.
type Seen struct {
	Version int64  `json:"version"`         // of its last record
	Hash    Digest `json:"hash"`            // of that event
	Marks   []Mark `json:"marks,omitempty"` // of its last records, oldest first
}

// Mark tells an event from another one with the same version: the first eight
// bytes of its hash.
type Mark struct {
	Version int64  `json:"version"`
	Hash    uint64 `json:"hash"`
}

// maxMarks bounds how many records of a stream are told from others. A restored
// database that lost more of one stream than this is not noticed by a fork.
const maxMarks = 16

// New makes a check of topics that are read from their beginning.
func New() *Check {
	return &Check{streams: map[Place]Seen{}, middle: map[string]bool{}, changed: map[Place]bool{}}
}

// FromMiddle says that a topic is not read from its beginning, and nothing is known
// of it: the first record of a stream is no gap, whatever came before it.
func (c *Check) FromMiddle(topic string) {
	c.middle[topic] = true
	maps.DeleteFunc(c.streams, func(p Place, _ Seen) bool { return p.Topic == topic })
}

// Restore gives back what Changed gave in an earlier life.
func (c *Check) Restore(p Place, s Seen) { c.streams[p] = s }

// Changed gives what is remembered now of every stream that a record came of since
// the last call.
func (c *Check) Changed() map[Place]Seen {
	out := make(map[Place]Seen, len(c.changed))
	for p := range c.changed {
		out[p] = c.streams[p]
	}
	clear(c.changed)
	return out
}

// Take looks at the next record. It is fresh if it is to be handled: what comes
// again is not, nor what is malformed. A fresh event can have findings: whether it is
// handled all the same is the caller's choice.
func (c *Check) Take(r Record) (e Event, fresh bool, findings []Finding) {
	find := func(kind Kind, expected, got, detail string) {
		findings = append(findings, Finding{Kind: kind, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
			Stream: e.Stream, Version: e.Version, Expected: expected, Got: got, Detail: detail})
	}
	e, err := Parse(r)
	if err != nil {
		find(Malformed, "", "", err.Error())
		return e, false, findings
	}
	if want := KeyOf(e.Stream); r.Key != want {
		find(WrongKey, want, r.Key, "the record's key is not that of its stream, so its order is not kept")
	}
	if sum := e.Sum(); sum != e.Hash {
		find(WrongHash, e.Hash.String(), sum.String(), "a field or the payload is not what was hashed")
	}
	place := Place{r.Topic, e.Stream}
	last, known := c.streams[place]
	if known && e.Version <= last.Version {
		fresh = c.again(place, e, find)
		return e, fresh, findings
	}
	if e.PrevInTopic != last.Version && (known || !c.middle[r.Topic]) {
		find(Gap, number(e.PrevInTopic), number(last.Version), "the stream's event before this one did not come")
	}
	if follows := e.Version == last.Version+1 && (known || e.Version == 1); follows && e.PrevHash != last.Hash {
		find(BrokenAt, last.Hash.String(), e.PrevHash.String(), "it does not follow the event before it")
	}
	c.remember(place, e, last.Marks)
	return e, true, findings
}

// remember makes an event the last of its stream, after the marks of those before it.
func (c *Check) remember(p Place, e Event, before []Mark) {
	marks := append(slices.Clone(before), markOf(e))
	c.streams[p] = Seen{Version: e.Version, Hash: e.Hash, Marks: marks[max(0, len(marks)-maxMarks):]}
	c.changed[p] = true
}

// again looks at a record that is not newer than the last one. It is the same event
// again, unless a mark says that another one came with its version (the ledger goes
// on from there) or that none did (it comes late, and the last one stays the last).
func (c *Check) again(p Place, e Event, find func(kind Kind, expected, got, detail string)) (fresh bool) {
	seen := c.streams[p]
	if len(seen.Marks) == 0 || e.Version < seen.Marks[0].Version {
		return false // older than what is told apart
	}
	i, has := slices.BinarySearchFunc(seen.Marks, e.Version, func(m Mark, v int64) int { return cmp.Compare(m.Version, v) })
	switch {
	case has && seen.Marks[i] == markOf(e):
		return false
	case has:
		find(Forked, "", e.Hash.String(), "another event came with this version before: the ledger was restored, and what came from version "+
			number(e.Version)+" on is no longer true")
		c.remember(p, e, seen.Marks[:i])
	default:
		find(OutOfTurn, "", "", "it comes after newer events of its stream, and did not come before")
		seen.Marks = slices.Insert(slices.Clone(seen.Marks), i, markOf(e))
		c.streams[p], c.changed[p] = seen, true
	}
	return true
}

func markOf(e Event) Mark { return Mark{e.Version, binary.BigEndian.Uint64(e.Hash[:8])} }

func number(n int64) string { return strconv.FormatInt(n, 10) }
