package commands

import (
	"context"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// presenceCache keeps the service's presence for a moment, so that writes under a
// lease do not each ask for it.
type presenceCache struct {
	mu   sync.Mutex
	p    domain.Presence // guarded by mu
	read time.Time       // when it was read, by the local clock; zero: read again; guarded by mu
}

// presenceFor is how long a replica may not know that another noted a sweep or
// moved resumed_at. Whoever is about to call a lease dead reads afresh; until
// then an old value does no harm: an old sweep only makes the service look away.
const presenceFor = time.Second

func (c *presenceCache) forget() {
	c.mu.Lock()
	c.read = time.Time{}
	c.mu.Unlock()
}

// Presence says when the service was there, as the database has it now.
func (s *Service) Presence(ctx context.Context) (domain.Presence, error) {
	return s.presenceWithin(ctx, 0)
}

// presenceWithin is Presence, at most age old.
func (s *Service) presenceWithin(ctx context.Context, age time.Duration) (domain.Presence, error) {
	s.presence.mu.Lock()
	p, read := s.presence.p, s.presence.read
	s.presence.mu.Unlock()
	if !read.IsZero() && time.Since(read) < age {
		return p, nil
	}
	began := time.Now()
	// The sweep first: a sweeper that finds a gap moves resumed_at before it notes
	// its sweep, so who sees the sweep sees the new resumed_at too.
	swept, err := s.Index.SweptAt(ctx)
	if err != nil {
		return domain.Presence{}, err
	}
	st, _, err := stateOf(ctx, s.Store, service, ServiceStream)
	if err != nil {
		return domain.Presence{}, err
	}
	p = domain.Presence{ResumedAt: st.ResumedAt, SweptAt: swept}
	s.presence.mu.Lock()
	if began.After(s.presence.read) {
		s.presence.p, s.presence.read = p, began
	}
	s.presence.mu.Unlock()
	return p, nil
}
