package bundle

import "fmt"

// Stream is one of the three logs of an attempt.
type Stream string

const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
	Events Stream = "events"
)

// Streams lists all of them in their fixed order.
func Streams() []Stream { return []Stream{Stdout, Stderr, Events} }

// ParseStream refuses every other name.
func ParseStream(name string) (Stream, error) {
	s := Stream(name)
	if !s.Valid() {
		return "", fmt.Errorf("log stream %q: must be stdout, stderr or events", name)
	}
	return s, nil
}

// Valid reports whether s is one of the three.
func (s Stream) Valid() bool { return s == Stdout || s == Stderr || s == Events }
