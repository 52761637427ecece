package commands

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

var parkedKeys = aggregate[domain.Parked]{domain.ParkedStateVersion, domain.EvolveParked, projections.ParkedChanges, nil, nil}

// ParkedStream names the stream of a key that was ever parked.
func ParkedStream(topic, key string) eventstore.StreamID {
	return eventstore.StreamID("forwarder/" + topic + "/" + key)
}

// ParkKey records that the broker refused an event; the same again is no change,
// unless another try had been asked for.
func (s *Service) ParkKey(ctx context.Context, p domain.ForwarderParked) error {
	return s.onKey(ctx, internalMeta("forwarder", newCommandID()), p.Topic, p.Key, domain.ParkKey{Parked: p}, nil)
}

// UnparkKey records that everything was published that had been passed over.
func (s *Service) UnparkKey(ctx context.Context, topic, key string, published int64) error {
	return s.onKey(ctx, internalMeta("forwarder", newCommandID()), topic, key, domain.UnparkKey{Published: published}, nil)
}

// RetryKey asks for another try of a parked key.
func (s *Service) RetryKey(ctx context.Context, m Meta, topic, key, text string) error {
	ref, texts, err := reasonText(text)
	if err != nil {
		return err
	}
	return s.onKey(ctx, m, topic, key, domain.RetryKey{ReasonText: ref}, texts)
}

// SkipEvent gives up publishing the event that the broker refuses, and asks for the
// ones behind it.
func (s *Service) SkipEvent(ctx context.Context, m Meta, topic, key string, event uuid.UUID, text string) error {
	ref, texts, err := reasonText(text)
	if err != nil {
		return err
	}
	return s.onKey(ctx, m, topic, key, domain.SkipEvent{EventID: domain.NewID[domain.EventID](event), ReasonText: ref}, texts)
}

// NoteForwarderReplay records that history is published again.
func (s *Service) NoteForwarderReplay(ctx context.Context, m Meta, e domain.ForwarderReplayed, text string) error {
	ref, texts, err := reasonText(text)
	if err != nil {
		return err
	}
	e.ReasonText = ref
	_, err = carryOut(ctx, s, service, ServiceStream, m, eventstore.ClassUrgent,
		func(st domain.Service, now time.Time) (decision, error) {
			events, err := domain.DecideService(st, domain.NoteForwarderReplay{Replayed: e}, now)
			return decision{events, texts}, err
		})
	return err
}

func (s *Service) onKey(ctx context.Context, m Meta, topic, key string, c domain.ParkedCommand, texts []eventstore.Text) error {
	_, err := carryOut(ctx, s, parkedKeys, ParkedStream(topic, key), m, eventstore.ClassUrgent,
		func(st domain.Parked, now time.Time) (decision, error) {
			events, err := domain.DecideParked(st, c, now)
			return decision{events, texts}, err
		})
	return err
}
