package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// maxHistory is how many events of a callback are shown, the latest ones.
const maxHistory = 500

// callbackHistory reads what happened to a callback. Nothing that the endpoint wrote
// is in it: events keep length and digest of an answer.
func (s *server) callbackHistory(ctx context.Context, c projections.Callback) (out []wire.CallbackEvent, omitted int, err error) {
	stream := commands.CallbackStream(c.Endpoint, domain.NewID[domain.AttemptID](c.AttemptID))
	var events []eventstore.Event
	for after := int64(0); ; {
		page, err := s.Streams.ReadStream(ctx, stream, after, streamPage)
		if err != nil {
			return nil, 0, fmt.Errorf("read the stream %s: %w", stream, err)
		}
		events = append(events, page...)
		if over := len(events) - maxHistory; over > 0 {
			omitted += over
			events = events[over:]
		}
		if len(page) < streamPage {
			break
		}
		after = page[len(page)-1].Version
	}
	out = make([]wire.CallbackEvent, len(events))
	for i, e := range events {
		if out[i], err = s.callbackEvent(ctx, e); err != nil {
			return nil, 0, err
		}
	}
	return out, omitted, nil
}

func (s *server) callbackEvent(ctx context.Context, e eventstore.Event) (wire.CallbackEvent, error) {
	d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
	if err != nil {
		return wire.CallbackEvent{}, fmt.Errorf("read version %d of %s: %w", e.Version, e.Stream, err)
	}
	out := wire.CallbackEvent{Event: e.Type[strings.LastIndexByte(e.Type, '.')+1:], At: e.Time.UTC(), Actor: wire.Actor(e.Actor)}
	answer := func(a domain.CallbackAnswer) {
		out.Round, out.Try, out.Status, out.LatencyMS = a.Round, a.Try, a.Status, &a.LatencyMS
		out.ResponseBytes, out.ResponseSHA256 = a.ResponseBytes, a.ResponseSHA256
	}
	switch d := d.(type) {
	case domain.CallbackScheduled:
		out.Round, out.GiveUpAt = 1, timeOf(d.GiveUpAt)
	case domain.CallbackDelivered:
		answer(d.CallbackAnswer)
	case domain.CallbackFailed:
		answer(d.CallbackAnswer)
		out.ErrorClass, out.NextAt = d.ErrorClass, utc(d.NextAt)
	case domain.CallbackExhausted:
		out.Round, out.Try, out.Reason = d.Round, d.Tries, d.Reason
	case domain.CallbackReplayed:
		out.Round, out.GiveUpAt = d.Round, timeOf(d.GiveUpAt)
		out.Reason, err = s.text(ctx, d.ReasonText)
	}
	return out, err
}

func timeOf(t time.Time) *time.Time { return utc(&t) }
