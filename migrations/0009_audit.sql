-- +goose NO TRANSACTION
-- +goose Up

-- The indexes grow without a lock: replicas of the release before go on writing. One
-- that broke off half-way leaves an index that has its name and is never used, so what
-- is there is dropped first.

-- What people with power did and what jobs were let do beyond others: GET /v1/audit.
DROP INDEX CONCURRENTLY IF EXISTS events_privileged;
CREATE INDEX CONCURRENTLY events_privileged ON events (position)
    WHERE actor_role = 'operator' OR type = 'execution.attempt.privileges_granted';

-- Jobs name artifacts of attempts by their ids, too.
DROP INDEX CONCURRENTLY IF EXISTS artifacts_by_id;
CREATE INDEX CONCURRENTLY artifacts_by_id ON artifacts (artifact_id);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS artifacts_by_id;
DROP INDEX CONCURRENTLY IF EXISTS events_privileged;
