package domain

import "time"

// AwayAfter is how long no sweep may have run before the service counts as having
// been away: its own downtime is never held against a runner.
const AwayAfter = 15 * time.Second

// DoubtAfter is how old the last sweep may be for a lease to be called dead: when
// the database's clock jumped, the sweep before the jump looks old, and only the
// next sweep will say so. A runner that was heard of within its fence is alive
// under any smaller jump, since the lease outlasts the fence by more than this.
const DoubtAfter = 5 * time.Second

// Presence says when the service was there. Both times are the database's.
type Presence struct {
	ResumedAt time.Time // when it last came back from being away; zero if it never was
	SweptAt   time.Time // when timers were last looked at; zero if they never were
}

// Away reports whether the service has been away and nobody has recorded its
// return yet. No timer fires meanwhile.
func (p Presence) Away(now time.Time) bool {
	return !p.SweptAt.IsZero() && now.Sub(p.SweptAt) > AwayAfter
}

// Since is the time from which leases count again. While the service is away, or
// may be, that is now, so that no lease is dead.
func (p Presence) Since(now time.Time) time.Time {
	if !p.SweptAt.IsZero() && now.Sub(p.SweptAt) > DoubtAfter {
		return now
	}
	return p.ResumedAt
}
