package api

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// forwarderLease is the name of the forwarder's row lease and of its checkpoint.
const forwarderLease = "forwarder"

func (s *server) getForwarder(q *request) error {
	ctx := q.Context()
	now, err := s.Reads.Now(ctx)
	if err != nil {
		return err
	}
	parked, err := s.Reads.ParkedKeys(ctx)
	if err != nil {
		return err
	}
	out := wire.Forwarder{Topics: []string{}, Parked: make([]wire.ParkedKey, len(parked))}
	for i, k := range parked {
		out.Parked[i] = parkedOf(k, now)
	}
	var st ForwarderStatus
	if s.Forwarder != nil {
		if st, err = s.Forwarder.Status(ctx); err != nil {
			return err
		}
		out.Enabled, out.Trouble, out.Topics = true, st.Trouble, list(st.Topics)
	}
	lease, held, err := s.Reads.ServiceLease(ctx, forwarderLease)
	if err != nil {
		return err
	}
	if held {
		out.Leader = &wire.ForwarderLeader{Holder: lease.Holder, Here: st.Leading, Until: lease.Until.UTC()}
	}
	if err := s.forwarderLag(ctx, &out, now); err != nil {
		return err
	}
	return q.json(http.StatusOK, out)
}

// forwarderLag says how far behind the feed publishing is. Where nobody ever
// published, nothing is behind.
func (s *server) forwarderLag(ctx context.Context, out *wire.Forwarder, now time.Time) error {
	end, err := s.Feed.FeedEnd(ctx)
	if err != nil {
		return fmt.Errorf("read the end of the feed: %w", err)
	}
	out.FeedEnd = end.String()
	at, err := s.Reads.Checkpoint(ctx, forwarderLease)
	if err != nil {
		return err
	}
	if at != (eventstore.Cursor{}) {
		out.Checkpoint = at.String()
	} else if out.Leader == nil && !out.Enabled {
		return nil
	}
	if out.LagEvents = max(0, end.Seq-at.Seq); out.LagEvents == 0 {
		return nil
	}
	first, err := s.Feed.ReadFeed(ctx, at, 1)
	if err != nil {
		return fmt.Errorf("read the feed after %s: %w", at, err)
	}
	if len(first) > 0 {
		out.LagSeconds = int64(max(0, now.Sub(first[0].Event.Time)) / time.Second)
	}
	return nil
}

func parkedOf(k projections.ParkedKey, now time.Time) wire.ParkedKey {
	return wire.ParkedKey{
		Topic: k.Topic, Key: k.Key, EventID: domain.NewID[domain.EventID](k.EventID), Stream: k.Stream, Version: k.Version, Type: k.Type,
		Reason: k.Reason, Detail: deref(k.Detail), ParkedAt: k.ParkedAt.UTC(), AgeSeconds: int64(max(0, now.Sub(k.ParkedAt)) / time.Second),
		RetryRequested: k.RetryRequested, SkippedEvent: idPtr[domain.EventID](k.SkippedEvent),
	}
}

func (s *server) retryKey(q *request) error {
	body, err := decodeBody[wire.RetryRequest](q.body)
	if err != nil {
		return err
	}
	if err := checkKey(body.Topic, body.Key); err != nil {
		return err
	}
	if err := s.Commands.RetryKey(q.Context(), q.meta, body.Topic, body.Key, body.Reason); err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.Ack{State: "retry_requested"})
}

func (s *server) skipEvent(q *request) error {
	body, err := decodeBody[wire.SkipRequest](q.body)
	if err != nil {
		return err
	}
	if err := checkKey(body.Topic, body.Key); err != nil {
		return err
	}
	if body.EventID.IsZero() {
		return violation("/event_id", "required", "is the event that the broker refuses, as GET /v1/forwarder names it")
	}
	if err := s.Commands.SkipEvent(q.Context(), q.meta, body.Topic, body.Key, body.EventID.UUID(), body.Reason); err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.Ack{State: "skipped"})
}

// A topic and a key make the name of a stream.
var (
	topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)
	recordKey = regexp.MustCompile(`^[ -~]{1,200}$`)
)

func checkKey(topic, key string) error {
	if !topicName.MatchString(topic) {
		return violation("/topic", "pattern", "is the name of a topic, as GET /v1/forwarder shows it")
	}
	if !recordKey.MatchString(key) {
		return violation("/key", "pattern", "is the key of a record, as GET /v1/forwarder shows it; * is the whole topic")
	}
	return nil
}
