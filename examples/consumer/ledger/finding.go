package ledger

import "fmt"

// Kind says what is wrong.
type Kind string

// What can be wrong with a record, or with what is not there.
const (
	Malformed Kind = "malformed" // the event cannot be told
	WrongKey  Kind = "key"       // the record's key is not its stream's
	WrongHash Kind = "hash"      // a hashed field or the payload was changed
	BrokenAt  Kind = "chain"     // its prev_hash is not the hash of the event before it
	Gap       Kind = "gap"       // the stream's event before it in the topic did not come
	OutOfTurn Kind = "order"     // it comes after newer ones, and never came before
	Forked    Kind = "fork"      // it is not the event that came with this version before
)

// Finding is one thing that is wrong, and where.
type Finding struct {
	Kind      Kind   `json:"kind"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Stream    string `json:"stream,omitempty"`
	Version   int64  `json:"version,omitempty"`
	// Expected and Got are versions of a gap (the record's previntopic, and the last
	// version that was seen; 0: none), else hashes or keys.
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
	Detail   string `json:"detail"`
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s at %s/%d@%d", f.Kind, f.Topic, f.Partition, f.Offset)
	if f.Stream != "" {
		s += fmt.Sprintf(", %s version %d", f.Stream, f.Version)
	}
	s += ": " + f.Detail
	if f.Expected != "" || f.Got != "" {
		s += fmt.Sprintf(" (expected %s, got %s)", f.Expected, f.Got)
	}
	return s
}
