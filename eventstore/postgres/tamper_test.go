package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
)

// TestChangesAreRefused tries to change history by hand, as the owner of the
// tables and a superuser, in a normal session and in one that plays the replica.
func TestChangesAreRefused(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	text := eventstore.Text{Bytes: []byte("x")}
	text.Digest = eventstore.TextDigest(text.Salt, text.Bytes)
	do(t, s, "tamper/a", 3, func(a *eventstore.Append) { a.Texts = []eventstore.Text{text} })
	do(t, s, "tamper/closed", 1, func(a *eventstore.Append) { a.Close = true })
	if err := settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"origin", "replica"} {
		for _, change := range []string{
			`UPDATE events SET payload = '{}' WHERE version = 2`,
			`UPDATE events SET tx_id = tx_id`,
			`DELETE FROM events WHERE stream = 'tamper/a' AND version = 3`,
			`TRUNCATE events`,
			`DELETE FROM stream_heads WHERE stream = 'tamper/a'`,
			`TRUNCATE stream_heads`,
			`UPDATE stream_heads SET version = 2, base_version = 1 WHERE stream = 'tamper/a'`,
			`UPDATE stream_heads SET stream = 'tamper/b', version = 4, base_version = 3 WHERE stream = 'tamper/a'`,
			`UPDATE stream_heads SET closed = false WHERE stream = 'tamper/closed'`,
			`UPDATE stream_heads SET version = 2, base_version = 1 WHERE stream = 'tamper/closed'`,
			`UPDATE event_texts SET bytes = 'y'`,
			`DELETE FROM event_texts`,
			`TRUNCATE event_texts`,
			`UPDATE feed SET seq = seq + 10`,
			`DELETE FROM feed WHERE seq = 1`,
			`TRUNCATE feed`,
			`DELETE FROM sequencer`,
			`TRUNCATE sequencer`,
			`UPDATE sequencer_ticks SET seq = 0`,
			`TRUNCATE sequencer_ticks`,
		} {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), `SELECT set_config('session_replication_role', $1, false)`, role); err != nil {
				t.Fatal(err)
			}
			_, err = conn.Exec(t.Context(), change)
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "EP001" {
				t.Errorf("as %s: %s: %v, want it refused", role, change, err)
			}
			if _, err := conn.Exec(context.WithoutCancel(t.Context()), `RESET session_replication_role`); err != nil {
				t.Fatal(err)
			}
			conn.Release()
		}
	}
	storetest.CheckFeed(t, s, 4)
	if events, err := s.ReadStream(t.Context(), "tamper/a", 0, 10); err != nil || len(events) != 3 {
		t.Errorf("%d events (%v), want 3", len(events), err)
	}
}

// TestChecksAreRefused: what the append statement would never write.
func TestChecksAreRefused(t *testing.T) {
	t.Parallel()
	_, pool := openStore(t, postgres.Options{})
	for constraint, insert := range map[string]string{
		"sequencer_one_row":           `INSERT INTO sequencer VALUES (false, 1, 0, 1, '')`,
		"sequencer_pkey":              `INSERT INTO sequencer VALUES (true, 1, 0, 1, '')`,
		"sequencer_ticks_pkey":        `INSERT INTO sequencer_ticks SELECT * FROM sequencer_ticks`,
		"feed_seq_positive":           `INSERT INTO feed VALUES (0, 1)`,
		"event_texts_whole_or_erased": `INSERT INTO event_texts VALUES (decode(repeat('00', 32), 'hex'), NULL, 'x', NULL)`,
		"service_leases_named":        `INSERT INTO service_leases VALUES ('', 'x', 1, now())`,
		"stream_heads_version_grows":  `INSERT INTO stream_heads VALUES ('s', 3, 3, now(), 1, false, decode(repeat('00', 32), 'hex'), '')`,
	} {
		_, err := pool.Exec(t.Context(), insert)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.ConstraintName != constraint {
			t.Errorf("%s: %v, want %s violated", insert, err, constraint)
		}
	}
}
