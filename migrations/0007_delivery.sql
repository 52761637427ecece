-- +goose Up

-- Written inline from the streams callback/<endpoint>/<attempt_id>.
CREATE TABLE callbacks (
    callback_id   uuid        PRIMARY KEY,
    stream        text        NOT NULL,
    endpoint      text        NOT NULL,
    attempt_id    uuid        NOT NULL,
    state         text        NOT NULL,
    round         int         NOT NULL,
    tries         int         NOT NULL,
    next_at       timestamptz NOT NULL,
    scheduled_at  timestamptz NOT NULL,
    give_up_at    timestamptz NOT NULL,
    last_try_at   timestamptz,
    last_status   int,
    last_error    text,
    delivered_at  timestamptz,
    result_sha256 text        NOT NULL,
    result_bytes  bigint      NOT NULL,
    CONSTRAINT callbacks_state CHECK (state IN ('pending', 'delivered', 'exhausted'))
) WITH (fillfactor = 80);
COMMENT ON TABLE callbacks IS 'The delivery of each result to each endpoint, and where it is.';
CREATE INDEX callbacks_due ON callbacks (endpoint, next_at) WHERE state = 'pending';
CREATE INDEX callbacks_open ON callbacks (endpoint, state, scheduled_at DESC, callback_id DESC) WHERE state <> 'delivered';
CREATE INDEX callbacks_by_attempt ON callbacks (attempt_id);
CREATE INDEX callbacks_by_endpoint ON callbacks (endpoint, scheduled_at DESC, callback_id DESC);
CREATE INDEX callbacks_by_time ON callbacks (scheduled_at DESC, callback_id DESC);

-- Written inline from the streams endpoint/<name>.
CREATE TABLE stopped_endpoints (
    endpoint   text        PRIMARY KEY,
    stream     text        NOT NULL,
    cause      text        NOT NULL,
    attempt_id uuid,
    stopped_at timestamptz NOT NULL
);
COMMENT ON TABLE stopped_endpoints IS 'Endpoints that nothing is delivered to until an operator resumes them.';

-- Written inline from the streams forwarder/<topic>/<key>.
CREATE TABLE forwarder_parked (
    topic           text        NOT NULL,
    key             text        NOT NULL,
    stream          text        NOT NULL,
    event_id        uuid        NOT NULL,
    event_stream    text        NOT NULL,
    event_version   bigint      NOT NULL,
    event_type      text        NOT NULL,
    reason          text        NOT NULL,
    detail          text,
    parked_at       timestamptz NOT NULL,
    retry_requested boolean     NOT NULL,
    skipped_event   uuid,
    PRIMARY KEY (topic, key)
);
COMMENT ON TABLE forwarder_parked IS 'Keys whose events the broker refuses; * is a whole topic. Later events of a key are passed over until it is tried again.';

-- Catch-up, written by the reader of the feed named results: each attempt's result as
-- the byte string that it was when the attempt ended. A row is never changed.
CREATE TABLE results (
    seq          bigint      PRIMARY KEY,
    generation   bigint      NOT NULL,
    attempt_id   uuid        NOT NULL UNIQUE,
    job_type     text        NOT NULL,
    environment  text        NOT NULL,
    callback_ref text,
    sha256       text        NOT NULL,
    body         bytea       NOT NULL,
    ended_at     timestamptz NOT NULL
);
CREATE INDEX results_by_time ON results (ended_at, seq);
COMMENT ON TABLE results IS 'The ExecutionResult of each ended attempt, byte for byte, by the place of its last event in the feed.';
COMMENT ON COLUMN results.generation IS 'Of the feed when the row was written; seq goes on over generations.';

-- +goose Down
DROP TABLE results, forwarder_parked, stopped_endpoints, callbacks;
