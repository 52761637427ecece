package projections

import (
	"context"
	"time"
)

// ServiceLease is who holds one of the service's own row leases.
type ServiceLease struct {
	Holder string // one run of one replica
	Term   int64
	Until  time.Time
}

// ServiceLease returns who holds a row lease now, by the database's clock; false if
// nobody does.
func (r *Reader) ServiceLease(ctx context.Context, name string) (ServiceLease, bool, error) {
	v, err := many[ServiceLease](ctx, r, "the row lease "+name,
		"SELECT holder, term, until FROM service_leases WHERE name = $1 AND until > clock_timestamp()", name)
	if err != nil || len(v) == 0 {
		return ServiceLease{}, false, err
	}
	return v[0], true, nil
}
