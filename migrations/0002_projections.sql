-- +goose Up

-- Inline read models. Each row belongs to exactly one stream (column stream) and
-- is written in the same statement as that stream's events. No index stands on
-- what a heartbeat changes, so that renewals stay heap-only updates.

CREATE TABLE attempts (
    attempt_id   uuid        PRIMARY KEY,
    stream       text        NOT NULL,
    operation_id uuid        NOT NULL,
    plan_node_id text        NOT NULL,
    retry_of     uuid,
    job_type     text        NOT NULL,
    action       text        NOT NULL,
    environment  text        NOT NULL,
    resource_ids text[]      NOT NULL,
    requested_by jsonb,
    labels       jsonb,
    runner       jsonb       NOT NULL,
    spec_sha256  text        NOT NULL,
    spec_text    text        NOT NULL,
    clocks       jsonb       NOT NULL,
    priority     int         NOT NULL,
    created_at   timestamptz NOT NULL
);
COMMENT ON TABLE attempts IS 'What .created says of an attempt; written once.';
CREATE INDEX attempts_by_node ON attempts (operation_id, plan_node_id);
CREATE INDEX attempts_by_time ON attempts (created_at DESC, attempt_id DESC);
CREATE INDEX attempts_by_resource ON attempts USING gin (resource_ids);

CREATE TABLE attempt_status (
    attempt_id   uuid        PRIMARY KEY,
    stream       text        NOT NULL,
    phase        text        NOT NULL,
    status       text        NOT NULL,
    category     text,
    failure_code text,
    stop_reason  text,
    runner_id    uuid,
    epoch        bigint      NOT NULL,
    started_at   timestamptz,
    finished_at  timestamptz,
    due_at       timestamptz,
    not_before   timestamptz,
    sealable     boolean     NOT NULL,
    bundle_state text,
    CONSTRAINT attempt_status_phase CHECK (phase IN ('queued', 'leased', 'running', 'finalizing', 'closed'))
) WITH (fillfactor = 80);
COMMENT ON TABLE attempt_status IS 'Where each attempt is; changes with its phase, never with a heartbeat.';
COMMENT ON COLUMN attempt_status.due_at IS 'When its next timer fires, leases apart.';
CREATE INDEX attempt_status_open ON attempt_status (phase) WHERE phase <> 'closed';
CREATE INDEX attempt_status_by_status ON attempt_status (status);

CREATE TABLE attempt_progress (
    attempt_id  uuid        PRIMARY KEY,
    stream      text        NOT NULL,
    phase       text        NOT NULL,
    done        bigint      NOT NULL,
    total       bigint      NOT NULL,
    message     text,
    observed_at timestamptz NOT NULL
) WITH (fillfactor = 80);

CREATE TABLE leases (
    attempt_id     uuid        PRIMARY KEY,
    stream         text        NOT NULL,
    lease_id       uuid        NOT NULL,
    runner_id      uuid        NOT NULL,
    epoch          bigint      NOT NULL,
    token_sha256   text        NOT NULL,
    kind           text        NOT NULL,
    lease_until    timestamptz NOT NULL,
    stop_reason    text,
    stop_deadline  timestamptz,
    CONSTRAINT leases_kind CHECK (kind IN ('offer', 'lease', 'upload'))
) WITH (fillfactor = 50);
COMMENT ON TABLE leases IS 'The live leases only; small, and renewed in place.';
CREATE INDEX leases_by_runner ON leases (runner_id);

CREATE TABLE lease_index (
    lease_id     uuid   PRIMARY KEY,
    stream       text   NOT NULL,
    attempt_id   uuid   NOT NULL,
    runner_id    uuid   NOT NULL,
    epoch        bigint NOT NULL,
    token_sha256 text   NOT NULL
);
COMMENT ON TABLE lease_index IS 'Every lease that ever was: which attempt and runner it names.';

CREATE TABLE runners (
    runner_id     uuid        PRIMARY KEY,
    stream        text        NOT NULL,
    name          text        NOT NULL,
    version       text        NOT NULL,
    binary_sha256 text        NOT NULL,
    pool          text        NOT NULL,
    host          text,
    approved      boolean     NOT NULL,
    job_types     text[]      NOT NULL,
    actions       text[]      NOT NULL,
    environments  text[]      NOT NULL,
    labels        jsonb       NOT NULL,
    tools         jsonb       NOT NULL,
    isolation     text[]      NOT NULL,
    slots         int         NOT NULL,
    incarnation   int         NOT NULL,
    token_id      uuid        NOT NULL,
    registered_at timestamptz NOT NULL
);

CREATE TABLE runner_status (
    runner_id uuid PRIMARY KEY,
    stream    text NOT NULL,
    status    text NOT NULL
);

CREATE TABLE artifacts (
    attempt_id  uuid        NOT NULL,
    name        text        NOT NULL,
    stream      text        NOT NULL,
    artifact_id uuid        NOT NULL,
    type        text        NOT NULL,
    output      boolean     NOT NULL,
    storage     text        NOT NULL,
    uri         text        NOT NULL,
    object_key  text,
    sensitivity text        NOT NULL,
    media_type  text,
    bytes       bigint      NOT NULL,
    sha256      text        NOT NULL,
    inline      text,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (attempt_id, name)
);

CREATE TABLE log_index (
    attempt_id   uuid   NOT NULL,
    log_stream   text   NOT NULL,
    log_offset   bigint NOT NULL,
    stream       text   NOT NULL,
    bytes        bigint NOT NULL,
    object_key   text   NOT NULL,
    object_bytes bigint NOT NULL,
    sha256       text   NOT NULL,
    PRIMARY KEY (attempt_id, log_stream, log_offset)
);

CREATE TABLE tokens (
    token_id   uuid        PRIMARY KEY,
    stream     text        NOT NULL,
    name       text        NOT NULL,
    role       text        NOT NULL,
    pool       text,
    runner_id  uuid,
    sha256     text        NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz
);

CREATE TABLE enrolments (
    enrolment_id uuid        PRIMARY KEY,
    stream       text        NOT NULL,
    pool         text        NOT NULL,
    sha256       text        NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    used_by      uuid,
    revoked_at   timestamptz
);

-- Not a projection and never compared: when a runner was last heard of. Only its
-- transitions are events.
CREATE TABLE runner_liveness (
    runner_id uuid        PRIMARY KEY,
    last_seen timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Not a projection: when the sweeper last ran, by the database's clock.
CREATE TABLE sweeps (
    name    text        PRIMARY KEY,
    last_at timestamptz NOT NULL
);

-- Not a projection: how far each reader of the feed has come.
CREATE TABLE checkpoints (
    name       text        PRIMARY KEY,
    generation bigint      NOT NULL,
    seq        bigint      NOT NULL,
    updated_at timestamptz NOT NULL
);

COMMENT ON TABLE attempt_progress IS 'The latest progress of each attempt.';
COMMENT ON TABLE runners IS 'Each runner as it registered last.';
COMMENT ON TABLE runner_status IS 'What each runner may do now.';
COMMENT ON TABLE artifacts IS 'Each artifact whose bytes are durable, by attempt and name.';
COMMENT ON TABLE log_index IS 'Where each durable chunk of log lies; offsets count content bytes.';
COMMENT ON TABLE tokens IS 'Bearer tokens, by digest; the secrets are stored nowhere.';
COMMENT ON TABLE enrolments IS 'One-time tokens that let one runner in, by digest.';
COMMENT ON TABLE runner_liveness IS 'When each runner was last heard of; not a projection and never compared.';
COMMENT ON TABLE sweeps IS 'When each sweep last ran; not a projection.';
COMMENT ON TABLE checkpoints IS 'How far each reader of the feed has come; not a projection.';

-- +goose Down
DROP TABLE checkpoints, sweeps, runner_liveness, enrolments, tokens, log_index, artifacts, runner_status, runners, lease_index, leases,
    attempt_progress, attempt_status, attempts;
