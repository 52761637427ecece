package forwarder

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// Status says how publishing is doing. The place and the parked keys are those of
// the deployment; the rest is this replica's own.
type Status struct {
	Leader bool
	// Checkpoint is how far everything is published or parked, as the database has it.
	Checkpoint eventstore.Cursor
	End        eventstore.Cursor
	// Lag is the number of events after the checkpoint, LagAge the age of the first of
	// them by this machine's clock; 0 if there is none.
	Lag    int64
	LagAge time.Duration
	Parked []projections.ParkedKey

	Published map[string]int64 // by topic, since this process began
	Refused   map[string]int64
	Retries   int64 // tries after the first one
	Replayed  int64
	// Trouble is what this replica tries again and again, and why; "" while nothing
	// is held up. Since is when the oldest of it began.
	Trouble string
	Since   time.Time
	// Missing says which topics do not exist, and how to make them.
	Missing []string
}

// Status reads the database; it needs neither the lease nor the brokers.
func (f *Forwarder) Status(ctx context.Context) (Status, error) {
	s := f.counts.read()
	var err error
	if s.Checkpoint, err = f.Checkpoints.Checkpoint(ctx, Lease); err != nil {
		return s, err
	}
	if s.End, err = f.Feed.FeedEnd(ctx); err != nil {
		return s, err
	}
	s.Lag = max(0, s.End.Seq-s.Checkpoint.Seq)
	if s.Lag > 0 {
		next, err := f.Feed.ReadFeed(ctx, s.Checkpoint, 1)
		if err != nil {
			return s, err
		}
		for _, e := range next {
			s.LagAge = max(0, time.Since(e.Event.Time))
		}
	}
	s.Parked, err = f.Parked.ParkedKeys(ctx)
	return s, err
}

// Local is Status without the database: what this replica alone knows.
func (f *Forwarder) Local() Status { return f.counts.read() }

// speakEvery is how often a trouble is logged.
const speakEvery = 10 * time.Second

// counts is what a replica knows of its own publishing.
type counts struct {
	mu       sync.Mutex
	leader   bool
	byTopic  map[string]int64
	refused  map[string]int64
	retries  int64
	replayed int64
	troubles map[string]trouble // by what is being done
	held     map[string]int     // events that each of them holds up
	spoke    time.Time          // of a trouble, in the log
	noTopics []string
	alone    map[string]time.Time // until when a topic gets its records one by one
	blamed   map[string]time.Time // when a topic last refused a record by itself
}

func (c *counts) init() {
	c.troubles, c.held = map[string]trouble{}, map[string]int{}
	c.byTopic, c.refused = map[string]int64{}, map[string]int64{}
	c.alone, c.blamed = map[string]time.Time{}, map[string]time.Time{}
}

func (c *counts) leading(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = yes
	if !yes {
		c.noTopics = nil
		clear(c.troubles)
	}
}

func (c *counts) missing(texts []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noTopics = texts
}

func (c *counts) lacking() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.noTopics) > 0
}

func (c *counts) read() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Leader: c.leader, Published: maps.Clone(c.byTopic), Refused: maps.Clone(c.refused), Retries: c.retries, Replayed: c.replayed, Missing: c.noTopics}
	var texts []string
	for _, doing := range slices.Sorted(maps.Keys(c.troubles)) {
		t := c.troubles[doing]
		texts = append(texts, t.text)
		if s.Since.IsZero() || t.since.Before(s.Since) {
			s.Since = t.since
		}
	}
	s.Trouble = strings.Join(texts, "; ")
	return s
}

// published counts an event that the broker has. One that went alone, after its
// batch was refused, makes the topic's records go alone for a while, unless a record
// was found that the batch was refused for: all other keys would pay for it.
func (f *Forwarder) published(it *item, alone bool) {
	c := &f.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.replayed {
		c.replayed++
	} else {
		c.byTopic[it.topic]++
	}
	if alone && time.Since(c.blamed[it.topic]) > blameFor {
		c.alone[it.topic] = time.Now().Add(aloneFor)
	}
}

func (f *Forwarder) alone(topic string) bool {
	c := &f.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	until, ok := c.alone[topic]
	if ok && time.Now().After(until) {
		delete(c.alone, topic)
		return false
	}
	return ok
}

func (f *Forwarder) refusedOne(topic string) {
	c := &f.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[topic]++
	c.blamed[topic] = time.Now()
	delete(c.alone, topic)
}

// trouble is what is tried again and again.
type trouble struct {
	text  string
	since time.Time
}

// troubled notes, under a name for what is being done, why it is tried again.
func (f *Forwarder) troubled(doing string, err error) {
	text := strings.ToValidUTF8(doing+": "+err.Error(), "")
	if k, _ := sort(err); k == clusterWide {
		text = advice(err) + ": " + text
	}
	c := &f.counts
	c.mu.Lock()
	before, known := c.troubles[doing]
	if !known {
		before.since = time.Now()
	}
	c.troubles[doing] = trouble{text, before.since}
	speak := time.Since(c.spoke) > speakEvery
	if speak {
		c.spoke = time.Now()
	}
	c.mu.Unlock()
	if speak {
		f.Log.Warn("publishing to Kafka is held up; it is tried again", "error", text)
	}
}

// heldUp notes that one more event waits for what is troubled under a name; the
// trouble is over when each of them is eased, however well others fare.
func (c *counts) heldUp(doing string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[doing]++
}

// eased notes that one of them waits no more.
func (c *counts) eased(doing string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[doing]--; c.held[doing] == 0 {
		delete(c.held, doing)
		delete(c.troubles, doing)
	}
}

// over notes that something that may have been troubled went well.
func (c *counts) over(doing string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.troubles, doing)
}

func (c *counts) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retries++
}
