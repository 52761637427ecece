-- +goose Up

-- Not a projection: which logs are followed, so that their runners send sooner.
-- UNLOGGED: after a crash nobody follows anything, and who does says so again.
CREATE UNLOGGED TABLE log_followers (
    attempt_id uuid        PRIMARY KEY,
    until      timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE log_followers IS 'Attempts whose log somebody follows, until when that holds unless it is said again; not a projection.';

-- Written inline from the streams bundle/<attempt_id>: what is wrong now.
CREATE TABLE scrub_findings (
    attempt_id   uuid        NOT NULL,
    object_key   text        NOT NULL,
    stream       text        NOT NULL,
    problem      text        NOT NULL,
    sha256       text        NOT NULL,
    bytes        bigint,
    found_sha256 text,
    found_bytes  bigint,
    found_at     timestamptz NOT NULL,
    PRIMARY KEY (attempt_id, object_key)
);
COMMENT ON TABLE scrub_findings IS 'Stored objects that are not what the ledger says, as last looked at. A healed one has no row.';

-- Not a projection: how far the standing scrubber has come.
CREATE TABLE scrub_progress (
    one        boolean     PRIMARY KEY DEFAULT true,
    round      bigint      NOT NULL,
    began_at   timestamptz NOT NULL,
    ended_at   timestamptz,
    attempt_id uuid        NOT NULL,
    object_key text        NOT NULL,
    objects    bigint      NOT NULL,
    bytes      bigint      NOT NULL,
    CONSTRAINT scrub_progress_one_row CHECK (one),
    CONSTRAINT scrub_progress_counts CHECK (round > 0 AND objects >= 0 AND bytes >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE scrub_progress IS 'The scrubber''s round: the last object looked at, and how many since the round began; not a projection.';

-- +goose Down
DROP TABLE scrub_progress, scrub_findings, log_followers;
