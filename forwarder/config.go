package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// Lease is the name of the row lease under which one replica publishes, and of the
// checkpoint that says how far it has come.
const Lease = "forwarder"

// Feed is the gapless order of all events, and a wait for it to grow.
type Feed interface {
	eventstore.Feed
	// WaitFeed blocks until the feed is known to reach beyond the cursor, or ctx ends.
	WaitFeed(ctx context.Context, after eventstore.Cursor) error
}

// History answers what the feed alone does not. It only reads.
type History interface {
	// ReadFeedOfStreams returns events of these streams in feed order, at most limit:
	// of streams[i] those above versions[i], and none up to the cursor's seq.
	ReadFeedOfStreams(ctx context.Context, streams []eventstore.StreamID, versions []int64, after eventstore.Cursor, limit int) ([]eventstore.FeedEvent, error)
	// StreamsOf returns those of the named streams that exist, and every stream that
	// is called <prefix>/<anything without a slash>/<suffix> for one of the prefixes.
	StreamsOf(ctx context.Context, names []eventstore.StreamID, prefixes []string, suffix string) ([]eventstore.StreamID, error)
	// PreviousVersions returns, for each stream and version, the last version below
	// it of an event of the type, and of one of another type; 0 where there is none.
	PreviousVersions(ctx context.Context, streams []eventstore.StreamID, below []int64, eventType string) (ofType, others []int64, err error)
	// SeqOfEvent returns an event's place in the feed; false if it is not there.
	SeqOfEvent(ctx context.Context, id uuid.UUID) (seq int64, ok bool, err error)
	// SeqOfPosition returns the place of the event with this position, or with the
	// next higher one that exists; false if there is none.
	SeqOfPosition(ctx context.Context, position int64) (seq int64, ok bool, err error)
	// SeqOfTime returns the lowest place of an event at or after a time; false if
	// there is none.
	SeqOfTime(ctx context.Context, at time.Time) (seq int64, ok bool, err error)
}

// Leases are fenced row leases; see dispatch.Leases for the contract.
type Leases interface {
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (term int64, ok bool, err error)
	RenewLease(ctx context.Context, name, holder string, term int64, ttl time.Duration) (ok bool, err error)
	ReleaseLease(ctx context.Context, name, holder string, term int64) error
}

// Checkpoints keep how far the feed was published.
type Checkpoints interface {
	Checkpoint(ctx context.Context, name string) (eventstore.Cursor, error)
	// SetCheckpointUnder records it if the row lease of the same name is still the
	// holder's under this term, in one statement; false if it is not.
	SetCheckpointUnder(ctx context.Context, name string, c eventstore.Cursor, holder string, term int64) (bool, error)
}

// Commands record what the forwarder does with what a broker refuses. Repeating
// one has no further effect.
type Commands interface {
	ParkKey(ctx context.Context, p domain.ForwarderParked) error
	UnparkKey(ctx context.Context, topic, key string, published int64) error
}

// ParkedKeys lists the keys that are parked now.
type ParkedKeys interface {
	ParkedKeys(ctx context.Context) ([]projections.ParkedKey, error)
}

// Topics are the names of the topics: at most 100 characters of [a-zA-Z0-9._-].
// An empty one takes its default.
type Topics struct {
	Attempts   string // execution.attempts
	Heartbeats string // execution.heartbeats
	Runners    string // execution.runners
	Callbacks  string // execution.callbacks
	Audit      string // execution.audit
}

// DefaultTopics are the names where none is configured.
func DefaultTopics() Topics {
	return Topics{"execution.attempts", "execution.heartbeats", "execution.runners", "execution.callbacks", "execution.audit"}
}

func (t Topics) withDefaults() Topics {
	d := DefaultTopics()
	for _, f := range []struct{ name, or *string }{
		{&t.Attempts, &d.Attempts}, {&t.Heartbeats, &d.Heartbeats}, {&t.Runners, &d.Runners}, {&t.Callbacks, &d.Callbacks}, {&t.Audit, &d.Audit},
	} {
		if *f.name == "" {
			*f.name = *f.or
		}
	}
	return t
}

// All lists the names, each once.
func (t Topics) All() []string {
	var out []string
	seen := map[string]bool{}
	for _, name := range []string{t.Attempts, t.Heartbeats, t.Runners, t.Callbacks, t.Audit} {
		if !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)

// Config is what a forwarder is made of. The zero value of what has a default
// takes it.
type Config struct {
	Feed        Feed
	History     History
	Leases      Leases
	Checkpoints Checkpoints
	Commands    Commands
	Parked      ParkedKeys
	// Holder names this run of this process and no other.
	Holder string

	Kafka  Kafka
	Topics Topics
	// Source is ce_source. Default urn:execution-plane.
	Source string
	// Envelope takes the way through Watermill's forwarder component, whose envelope
	// is made in memory, instead of a plain router handler, which is faster. What
	// comes to the broker is the same.
	Envelope bool
	// Lanes is how many records are under way at once. Default 1024: with fewer a
	// backlog of short streams fills no batch.
	Lanes int
	// WindowEvents and WindowBytes bound what is read from the feed beyond the
	// checkpoint. Defaults 8,192 and 64 MiB; of events that are done only the place
	// is kept.
	WindowEvents int
	WindowBytes  int64
	// TopicEvery is how often a topic that is parked as a whole is tried again.
	// Default 30 s.
	TopicEvery time.Duration
	Log        *slog.Logger
}

// ErrConfig marks an error of what the forwarder was told.
var ErrConfig = errors.New("the forwarder's settings are wrong")

func (c Config) withDefaults() (Config, error) {
	if c.Holder == "" {
		return c, fmt.Errorf("%w: it needs a holder name that is unique to this process", ErrConfig)
	}
	c.Topics = c.Topics.withDefaults()
	for _, name := range c.Topics.All() {
		if !topicName.MatchString(name) || name == "." || name == ".." {
			return c, fmt.Errorf("%w: the topic name %q is not 1 to 100 characters of [a-zA-Z0-9._-]", ErrConfig, name)
		}
	}
	if c.Source == "" {
		c.Source = "urn:execution-plane"
	}
	if c.Lanes <= 0 {
		c.Lanes = 1024
	}
	if c.WindowEvents <= 0 {
		c.WindowEvents = 8192
	}
	if c.WindowBytes <= 0 {
		c.WindowBytes = 64 << 20
	}
	if c.TopicEvery <= 0 {
		c.TopicEvery = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Kafka = c.Kafka.withDefaults()
	if _, err := c.Kafka.client(nil); err != nil {
		return c, err
	}
	return c, nil
}
