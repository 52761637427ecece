package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// Several replicas may call Up at once: one migrates, the others look every
// lockEverySeconds whether it has finished, at most lockTries times.
const (
	lockEverySeconds = 1
	lockTries        = 300
)

// TooOldError says that a later release took something away from the schema that
// this one still uses.
type TooOldError struct {
	Newest int64 // number of the last migration that this release brings
	Oldest int64 // what a release must bring to work on the database
}

func (e *TooOldError) Error() string {
	return fmt.Sprintf("this release is too old for the database: it brings migrations up to %04d, and the schema, which a later release changed, needs one that brings %04d; start the later release", e.Newest, e.Oldest)
}

// Up applies every migration that the database lacks, each in its own
// transaction. It may be called again and by several processes at once. The
// pool needs one connection free for the call. Migrations of later releases are
// left as they are; the error is a *TooOldError if this release cannot work with
// them.
func Up(ctx context.Context, pool *pgxpool.Pool) (err error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(lockEverySeconds, lockTries))
	if err != nil {
		return fmt.Errorf("prepare the migration lock: %w", err)
	}
	p, db, err := provider(pool, goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkFloor(ctx, pool, newest(p)); err != nil {
		return err
	}
	// Goose looks once without the lock: replicas that start on a migrated
	// database do not wait for one another.
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

// Check returns how many migrations the database lacks. It changes nothing. What
// a later release added to the schema does not count; the error is a *TooOldError
// if a later release took something away that this one needs.
func Check(ctx context.Context, pool *pgxpool.Pool) (pending int, err error) {
	p, db, err := provider(pool)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var exists bool
	if err := pool.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, goose.DefaultTablename).Scan(&exists); err != nil {
		return 0, fmt.Errorf("look for the table of applied migrations: %w", err)
	}
	if !exists {
		return len(p.ListSources()), nil
	}
	if err := checkFloor(ctx, pool, newest(p)); err != nil {
		return 0, err
	}
	states, err := p.Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the applied migrations: %w", err)
	}
	for _, s := range states {
		if s.State == goose.StatePending {
			pending++
		}
	}
	return pending, nil
}

// newest is the number of the last migration that this release brings.
func newest(p *goose.Provider) int64 {
	sources := p.ListSources()
	return sources[len(sources)-1].Version
}

// checkFloor compares this release with the oldest one that the schema allows.
func checkFloor(ctx context.Context, pool *pgxpool.Pool, newest int64) error {
	var exists bool
	if err := pool.QueryRow(ctx, `SELECT to_regclass('schema_floor') IS NOT NULL`).Scan(&exists); err != nil {
		return fmt.Errorf("look for the oldest release that the schema allows: %w", err)
	}
	if !exists {
		return nil // the schema is older than the table
	}
	var oldest int64
	if err := pool.QueryRow(ctx, `SELECT oldest FROM schema_floor`).Scan(&oldest); err != nil {
		return fmt.Errorf("read the oldest release that the schema allows: %w", err)
	}
	if newest < oldest {
		return &TooOldError{Newest: newest, Oldest: oldest}
	}
	return nil
}

func provider(pool *pgxpool.Pool, opts ...goose.ProviderOption) (*goose.Provider, *sql.DB, error) {
	db := stdlib.OpenDBFromPool(pool)
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, append(opts, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read the migrations: %w", err), db.Close())
	}
	return p, db, nil
}
