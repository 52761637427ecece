package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// AcquireLease takes the named row lease for holder if nobody holds it, for ttl
// by the database's clock. ok is false while another holder (or this one, under
// an earlier term) has it. The term grows with every acquisition; whoever writes
// on behalf of the lease checks in the same transaction that the term is still
// its own. A holder names one run of one process, such as a fresh UUID.
func (s *Store) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (term int64, ok bool, err error) {
	err = s.query(ctx, `
INSERT INTO service_leases AS l (name, holder, term, until) VALUES ($1, $2, 1, clock_timestamp() + $3::interval)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, term = l.term + 1, until = excluded.until
WHERE l.until <= clock_timestamp()
RETURNING term`, []any{name, holder, ttl}, func(rows pgx.Rows) error { ok = true; return rows.Scan(&term) })
	if err != nil {
		return 0, false, readError(ctx, fmt.Sprintf("acquire lease %s", name), err)
	}
	return term, ok, nil
}

// RenewLease prolongs a lease to ttl from now; false if another term began. A
// lease that ran out but that nobody took is renewed.
func (s *Store) RenewLease(ctx context.Context, name, holder string, term int64, ttl time.Duration) (ok bool, err error) {
	err = s.query(ctx, `
UPDATE service_leases SET until = clock_timestamp() + $4::interval
WHERE name = $1 AND holder = $2 AND term = $3 RETURNING 1`,
		[]any{name, holder, term, ttl}, func(pgx.Rows) error { ok = true; return nil })
	if err != nil {
		return false, readError(ctx, fmt.Sprintf("renew lease %s", name), err)
	}
	return ok, nil
}

// ReleaseLease gives a lease back at once. Nothing happens if it is another's.
func (s *Store) ReleaseLease(ctx context.Context, name, holder string, term int64) error {
	err := s.query(ctx, `
UPDATE service_leases SET until = '-infinity' WHERE name = $1 AND holder = $2 AND term = $3`,
		[]any{name, holder, term}, func(pgx.Rows) error { return nil })
	if err != nil {
		return readError(ctx, fmt.Sprintf("release lease %s", name), err)
	}
	return nil
}
