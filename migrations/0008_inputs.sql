-- +goose Up

-- Written inline from the streams operation/<operation_id>: what the control plane
-- put there for the operation's jobs. Of a name the one with the highest ordinal
-- counts.
CREATE TABLE operation_artifacts (
    artifact_id uuid        PRIMARY KEY,
    stream      text        NOT NULL,
    name        text        NOT NULL,
    ordinal     int         NOT NULL,
    type        text        NOT NULL,
    storage     text        NOT NULL,
    uri         text        NOT NULL,
    object_key  text        NOT NULL,
    sensitivity text        NOT NULL,
    media_type  text,
    bytes       bigint      NOT NULL,
    sha256      text        NOT NULL,
    created_at  timestamptz NOT NULL
);
COMMENT ON TABLE operation_artifacts IS 'Artifacts that the control plane put to operations; the stream is operation/<operation_id>.';
COMMENT ON COLUMN operation_artifacts.ordinal IS 'Counts what was put to the operation, from 1.';
CREATE INDEX operation_artifacts_by_name ON operation_artifacts (stream, name, ordinal DESC);

-- Written inline from the streams package/<sha256>.
CREATE TABLE packages (
    sha256    text        PRIMARY KEY,
    stream    text        NOT NULL,
    name      text        NOT NULL,
    version   text,
    bytes     bigint      NOT NULL,
    pushed_at timestamptz NOT NULL
);
COMMENT ON TABLE packages IS 'Packages of playbooks whose bytes are in object storage; policy says who may use them.';
CREATE INDEX packages_by_name ON packages (name, pushed_at DESC);

-- +goose Down
DROP TABLE packages;
DROP TABLE operation_artifacts;
