-- +goose Up

-- Positions are taken while the stream's head row is locked. CACHE 1 keeps them
-- in that order across connections; a larger cache would mix streams' versions.
CREATE SEQUENCE event_position AS bigint START 1 CACHE 1;

CREATE TABLE events (
    position       bigint      NOT NULL DEFAULT nextval('event_position'),
    tx_id          xid8        NOT NULL DEFAULT pg_current_xact_id(),
    version        bigint      NOT NULL,
    time           timestamptz NOT NULL,
    event_id       uuid        NOT NULL,
    command_id     uuid        NOT NULL,
    cause          uuid        NOT NULL,
    schema         integer     NOT NULL,
    stream         text        NOT NULL COLLATE "C",
    type           text        NOT NULL COLLATE "C",
    command_digest bytea       NOT NULL,
    actor_kind     text        NOT NULL COLLATE "C",
    actor_id       text        NOT NULL COLLATE "C",
    actor_role     text        NOT NULL COLLATE "C",
    actor_auth     text        NOT NULL COLLATE "C",
    operation_id   text        NOT NULL COLLATE "C",
    plan_node_id   text        NOT NULL COLLATE "C",
    traceparent    text        NOT NULL COLLATE "C",
    prev_hash      bytea       NOT NULL,
    hash           bytea       NOT NULL,
    payload        bytea       NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (stream, version),
    CONSTRAINT events_position_key UNIQUE (position),
    CONSTRAINT events_event_id_key UNIQUE (event_id),
    CONSTRAINT events_version_positive CHECK (version > 0),
    CONSTRAINT events_position_positive CHECK (position > 0),
    CONSTRAINT events_schema_positive CHECK (schema > 0),
    CONSTRAINT events_stream_length CHECK (octet_length(stream) BETWEEN 1 AND 200),
    CONSTRAINT events_type_named CHECK (type <> ''),
    CONSTRAINT events_payload_length CHECK (octet_length(payload) <= 65536),
    CONSTRAINT events_digest_length CHECK (octet_length(command_digest) = 32),
    CONSTRAINT events_hash_length CHECK (octet_length(prev_hash) = 32 AND octet_length(hash) = 32)
);

-- The sequencer finds what a snapshot did not see by two ranges of this index.
CREATE INDEX events_tx_id_position ON events (tx_id, position);

COMMENT ON TABLE events IS 'The ledger: append-only, hash-chained by stream. Written only by the append statement.';
COMMENT ON COLUMN events.position IS 'Order of insertion, with gaps; not the order of commit. Not hashed.';
COMMENT ON COLUMN events.tx_id IS 'Transaction that inserted the row. Only the sequencer reads it. Not hashed.';
COMMENT ON COLUMN events.version IS 'Dense from 1 within the stream.';
COMMENT ON COLUMN events.time IS 'The clock by which the command was decided; never before the stream''s last event.';
COMMENT ON COLUMN events.event_id IS 'UUIDv5(command_id, index): makes a command take effect once.';
COMMENT ON COLUMN events.cause IS 'Event that led to this one; the nil UUID if none.';
COMMENT ON COLUMN events.payload IS 'The exact bytes that were hashed.';
COMMENT ON COLUMN events.hash IS 'SHA-256(domain || prev_hash || header || payload), see docs/events.md.';

CREATE TABLE stream_heads (
    stream        text        NOT NULL COLLATE "C",
    version       bigint      NOT NULL,
    base_version  bigint      NOT NULL,
    time          timestamptz NOT NULL,
    state_version integer     NOT NULL,
    closed        boolean     NOT NULL,
    hash          bytea       NOT NULL,
    state         bytea       NOT NULL,
    CONSTRAINT stream_heads_pkey PRIMARY KEY (stream),
    CONSTRAINT stream_heads_version_grows CHECK (version > base_version AND base_version >= 0),
    CONSTRAINT stream_heads_hash_length CHECK (octet_length(hash) = 32),
    CONSTRAINT stream_heads_state_length CHECK (octet_length(state) <= 4096)
) WITH (fillfactor = 70);

COMMENT ON TABLE stream_heads IS 'The tip of each stream. Only the primary key is indexed, so that every append is a HOT update.';
COMMENT ON COLUMN stream_heads.base_version IS 'Version before the last append: what that append expected to find.';
COMMENT ON COLUMN stream_heads.state IS 'Folded state after version, for readers that know state_version; others fold afresh.';
COMMENT ON COLUMN stream_heads.closed IS 'The last event of the stream is stored; no further append.';

CREATE TABLE event_texts (
    digest    bytea NOT NULL,
    salt      bytea,
    bytes     bytea,
    erased_at timestamptz,
    CONSTRAINT event_texts_pkey PRIMARY KEY (digest),
    CONSTRAINT event_texts_digest_length CHECK (octet_length(digest) = 32),
    CONSTRAINT event_texts_whole_or_erased CHECK (
        (erased_at IS NULL AND bytes IS NOT NULL AND salt IS NOT NULL AND octet_length(salt) = 16)
        OR (erased_at IS NOT NULL AND bytes IS NULL AND salt IS NULL))
);

COMMENT ON TABLE event_texts IS 'Free text and documents that events name by SHA-256(salt || bytes). Erasing one leaves the chain valid.';

CREATE TABLE feed (
    seq      bigint NOT NULL,
    position bigint NOT NULL,
    CONSTRAINT feed_pkey PRIMARY KEY (seq),
    CONSTRAINT feed_position_key UNIQUE (position),
    CONSTRAINT feed_seq_positive CHECK (seq > 0)
);

COMMENT ON TABLE feed IS 'The gapless global order: every committed event once, versions of a stream in order. Written only by the sequencer.';

CREATE TABLE sequencer (
    one               boolean NOT NULL DEFAULT true,
    generation        bigint  NOT NULL,
    floor             bigint  NOT NULL,
    system_identifier bigint  NOT NULL,
    timeline          text    NOT NULL COLLATE "C",
    CONSTRAINT sequencer_pkey PRIMARY KEY (one),
    CONSTRAINT sequencer_one_row CHECK (one),
    CONSTRAINT sequencer_counts CHECK (generation > 0 AND floor >= 0)
);

COMMENT ON TABLE sequencer IS 'One row, locked for the length of a tick and hardly ever changed.';
COMMENT ON COLUMN sequencer.generation IS 'Part of every cursor; grows when the feed was taken over by another cluster or timeline.';
COMMENT ON COLUMN sequencer.floor IS 'Events up to this position were fed when the database came to this cluster; their tx_id belongs to another one.';
COMMENT ON COLUMN sequencer.system_identifier IS 'The cluster whose transaction ids lo speaks of.';

-- What a tick leaves behind is a row of its own and not an update of one row:
-- while a long transaction holds back vacuum, hundreds of updates a second would
-- pile up dead versions that every tick has to read past. The newest row is
-- found at the end of the index whatever lies behind it.
CREATE TABLE sequencer_ticks (
    tick          bigint      NOT NULL,
    seq           bigint      NOT NULL,
    last_position bigint      NOT NULL,
    at            timestamptz NOT NULL,
    lo            pg_snapshot NOT NULL,
    CONSTRAINT sequencer_ticks_pkey PRIMARY KEY (tick),
    CONSTRAINT sequencer_ticks_counts CHECK (seq >= 0 AND last_position >= seq)
);

COMMENT ON TABLE sequencer_ticks IS 'How far the feed had come after each of the last thousand ticks; the newest row counts.';
COMMENT ON COLUMN sequencer_ticks.tick IS 'Dense. Two ticks from one state would collide on it.';
COMMENT ON COLUMN sequencer_ticks.seq IS 'The last seq of feed.';
COMMENT ON COLUMN sequencer_ticks.last_position IS 'The highest position fed; minus seq it is the number of positions skipped by rollbacks and crashes.';
COMMENT ON COLUMN sequencer_ticks.lo IS 'All events visible in this snapshot are in feed.';

INSERT INTO sequencer (generation, floor, system_identifier, timeline)
SELECT 1, 0, system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system();
INSERT INTO sequencer_ticks VALUES (1, 0, 0, clock_timestamp(), '1:1:');

CREATE TABLE service_leases (
    name   text        NOT NULL COLLATE "C",
    holder text        NOT NULL COLLATE "C",
    term   bigint      NOT NULL,
    until  timestamptz NOT NULL,
    CONSTRAINT service_leases_pkey PRIMARY KEY (name),
    CONSTRAINT service_leases_term_positive CHECK (term > 0),
    CONSTRAINT service_leases_named CHECK (name <> '' AND holder <> '')
) WITH (fillfactor = 50);

COMMENT ON TABLE service_leases IS 'Work that one replica may do at a time. The term grows with every new holder; who writes under an old term is refused.';
COMMENT ON COLUMN service_leases.until IS 'Free for others from then on, by the database''s clock; -infinity once given back.';

-- Refuses a change for everyone, the owner included. A superuser may still drop
-- the trigger; the hash chain is what shows such a change.
-- +goose StatementBegin
CREATE FUNCTION event_store_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = 'EP001', HINT = 'The ledger is append-only; correct it by a new event.';
END $$;
-- +goose StatementEnd

-- Ends the append statement when an inline row's key belongs to another stream.
-- +goose StatementBegin
CREATE FUNCTION event_store_refuse_row(tbl text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a row of % belongs to another stream', tbl USING ERRCODE = 'EP002', TABLE = tbl;
END $$;
-- +goose StatementEnd

CREATE TRIGGER events_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION event_store_refuse_change('events are never changed');
CREATE TRIGGER stream_heads_no_delete BEFORE DELETE OR TRUNCATE ON stream_heads
    FOR EACH STATEMENT EXECUTE FUNCTION event_store_refuse_change('a stream is never deleted');
CREATE TRIGGER stream_heads_forward BEFORE UPDATE ON stream_heads
    FOR EACH ROW WHEN (OLD.closed OR NEW.version <= OLD.version OR NEW.base_version <> OLD.version OR NEW.stream <> OLD.stream)
    EXECUTE FUNCTION event_store_refuse_change('a head only moves on, and not after its stream was closed');
CREATE TRIGGER event_texts_no_delete BEFORE DELETE OR TRUNCATE ON event_texts
    FOR EACH STATEMENT EXECUTE FUNCTION event_store_refuse_change('a text is erased, its digest stays');
CREATE TRIGGER event_texts_only_erase BEFORE UPDATE ON event_texts
    FOR EACH ROW WHEN (NEW.digest <> OLD.digest OR NEW.bytes IS NOT NULL OR OLD.erased_at IS NOT NULL)
    EXECUTE FUNCTION event_store_refuse_change('a text is erased, never changed');
CREATE TRIGGER feed_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON feed
    FOR EACH STATEMENT EXECUTE FUNCTION event_store_refuse_change('the feed is never changed');
CREATE TRIGGER sequencer_no_delete BEFORE DELETE OR TRUNCATE ON sequencer
    FOR EACH STATEMENT EXECUTE FUNCTION event_store_refuse_change('the sequencer''s row stays');
CREATE TRIGGER sequencer_ticks_no_change BEFORE UPDATE OR TRUNCATE ON sequencer_ticks
    FOR EACH STATEMENT EXECUTE FUNCTION event_store_refuse_change('a tick is never changed');

-- ALWAYS: also in a session that plays the replica.
ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_change;
ALTER TABLE stream_heads ENABLE ALWAYS TRIGGER stream_heads_no_delete;
ALTER TABLE stream_heads ENABLE ALWAYS TRIGGER stream_heads_forward;
ALTER TABLE event_texts ENABLE ALWAYS TRIGGER event_texts_no_delete;
ALTER TABLE event_texts ENABLE ALWAYS TRIGGER event_texts_only_erase;
ALTER TABLE feed ENABLE ALWAYS TRIGGER feed_no_change;
ALTER TABLE sequencer ENABLE ALWAYS TRIGGER sequencer_no_delete;
ALTER TABLE sequencer_ticks ENABLE ALWAYS TRIGGER sequencer_ticks_no_change;

-- The ledger has no way back: it is restored from a backup.
-- +goose Down
-- +goose StatementBegin
DO $$ BEGIN
    RAISE EXCEPTION 'the event store has no way back; restore the database from a backup';
END $$;
-- +goose StatementEnd
