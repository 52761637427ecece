-- +goose Up

-- Written inline from the attempts' streams: the Vault tokens that a runner told
-- and did not tell to be revoked. Accessors revoke a token and cannot use it.
CREATE TABLE secret_tokens (
    attempt_id uuid        NOT NULL,
    accessor   text        NOT NULL,
    stream     text        NOT NULL,
    lease_id   uuid        NOT NULL,
    purpose    text        NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (attempt_id, accessor)
);
COMMENT ON TABLE secret_tokens IS 'Vault tokens of attempts, by accessor, until their runner says that they are revoked.';
CREATE INDEX secret_tokens_by_end ON secret_tokens (expires_at);

-- Written inline from the runners' streams: what another runner of the pool left
-- behind and this one revoked.
CREATE TABLE secret_revocations (
    attempt_id uuid        NOT NULL,
    accessor   text        NOT NULL,
    runner_id  uuid        NOT NULL,
    stream     text        NOT NULL,
    revoked_at timestamptz NOT NULL,
    PRIMARY KEY (attempt_id, accessor, runner_id)
);
COMMENT ON TABLE secret_revocations IS 'Vault tokens that a runner revoked in the place of the one that left them.';

-- +goose Down
DROP TABLE secret_revocations, secret_tokens;
