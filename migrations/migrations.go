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

// Up applies every migration that the database lacks, each in its own
// transaction. It may be called again and by several processes at once. The
// pool needs one connection free for the call.
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
	// Goose looks once without the lock: replicas that start on a migrated
	// database do not wait for one another.
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

// Check returns how many migrations the database lacks. It changes nothing.
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

func provider(pool *pgxpool.Pool, opts ...goose.ProviderOption) (*goose.Provider, *sql.DB, error) {
	db := stdlib.OpenDBFromPool(pool)
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, append(opts, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read the migrations: %w", err), db.Close())
	}
	return p, db, nil
}
