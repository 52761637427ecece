package projections

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// parkedRow is a key whose events the broker refuses.
type parkedRow struct {
	Topic          string          `json:"topic"`
	Key            string          `json:"key"`
	EventID        domain.EventID  `json:"event_id"`
	EventStream    string          `json:"event_stream"`
	EventVersion   int64           `json:"event_version"`
	EventType      string          `json:"event_type"`
	Reason         string          `json:"reason"`
	Detail         *string         `json:"detail"`
	ParkedAt       time.Time       `json:"parked_at"`
	RetryRequested bool            `json:"retry_requested"`
	SkippedEvent   *domain.EventID `json:"skipped_event"`
}

type parkedKey struct {
	Topic string `json:"topic"`
	Key   string `json:"key"`
}

func parkedChanges(before, p domain.Parked, _ []domain.Event, _ time.Time) []change {
	if p.ParkedAt == nil {
		return []change{remove("forwarder_parked", parkedKey{before.Topic, before.Key})}
	}
	return []change{set("forwarder_parked", parkedRow{
		Topic: p.Topic, Key: p.Key, EventID: p.EventID, EventStream: p.Stream, EventVersion: p.Version, EventType: p.Type,
		Reason: p.Reason, Detail: ptr(p.Detail), ParkedAt: *p.ParkedAt, RetryRequested: p.Requested, SkippedEvent: ptr(p.SkippedEvent),
	})}
}

// ParkedKey is a key whose events the broker refuses, from EventID on. Later ones
// are passed over.
type ParkedKey struct {
	Topic          string
	Key            string // domain.WholeTopic: every key
	EventID        uuid.UUID
	Stream         string `db:"event_stream"`
	Version        int64  `db:"event_version"`
	Type           string `db:"event_type"`
	Reason         string
	Detail         *string
	ParkedAt       time.Time
	RetryRequested bool
	SkippedEvent   *uuid.UUID // given up; go on behind it
}

// ParkedKeys lists them, by topic and key.
func (r *Reader) ParkedKeys(ctx context.Context) ([]ParkedKey, error) {
	return many[ParkedKey](ctx, r, "parked keys", `
		SELECT topic, key, event_id, event_stream, event_version, event_type, reason, detail, parked_at, retry_requested, skipped_event
		FROM forwarder_parked ORDER BY topic, key`)
}
