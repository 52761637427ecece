package eventstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Cursor is a place in the feed. Its text form is "<generation>.<seq>"; the
// generation changes when the feed was rebuilt in another cluster and readers
// must look again. The zero cursor is before the first event.
type Cursor struct {
	Generation int64
	Seq        int64
}

func (c Cursor) String() string {
	return strconv.FormatInt(c.Generation, 10) + "." + strconv.FormatInt(c.Seq, 10)
}

// ParseCursor reads the text form of a cursor; "" is the zero cursor.
func ParseCursor(s string) (Cursor, error) {
	if s == "" {
		return Cursor{}, nil
	}
	g, q, ok := strings.Cut(s, ".")
	gen, err1 := strconv.ParseInt(g, 10, 64)
	seq, err2 := strconv.ParseInt(q, 10, 64)
	if !ok || err1 != nil || err2 != nil || gen < 0 || seq < 0 || (Cursor{gen, seq}).String() != s {
		return Cursor{}, fmt.Errorf("cursor %q is not of the form <generation>.<seq>; use one that an earlier answer gave", s)
	}
	return Cursor{gen, seq}, nil
}

// FeedEvent is an event at its place in the feed.
type FeedEvent struct {
	Cursor Cursor
	Event  Event
}

// Feed reads all events of the store in one gapless order.
type Feed interface {
	// ReadFeed returns at most limit events after the cursor, in feed order; none
	// if the reader has caught up. A cursor of another generation is read from
	// its seq on in the present one.
	ReadFeed(ctx context.Context, after Cursor, limit int) ([]FeedEvent, error)
	// FeedEnd returns the cursor of the last event fed.
	FeedEnd(ctx context.Context) (Cursor, error)
}
