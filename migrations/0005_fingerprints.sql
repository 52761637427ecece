-- +goose Up

-- Not a projection: keyed hashes of what an attempt must not show, until its bundle
-- was scanned. The key is in no database. UNLOGGED: they are worth nothing after a
-- crash, and a scan that misses them says so. "stream" lets the append that records
-- the verdict delete the row.
CREATE UNLOGGED TABLE secret_fingerprints (
    attempt_id uuid    PRIMARY KEY,
    stream     text    NOT NULL,
    key_id     bytea   NOT NULL,
    sent       boolean NOT NULL DEFAULT false,
    certain    integer NOT NULL DEFAULT 0,
    prints     bytea   NOT NULL DEFAULT '',
    CONSTRAINT secret_fingerprints_key CHECK (length(key_id) IN (0, 8)),
    CONSTRAINT secret_fingerprints_prints CHECK (length(prints) % 8 = 0 AND length(prints) <= 4194304)
);
ALTER TABLE secret_fingerprints ALTER COLUMN prints SET STORAGE EXTERNAL;
COMMENT ON TABLE secret_fingerprints IS 'Keyed hashes by which a bundle is scanned for secrets, until it was; not a projection.';

-- Not a projection: which keys the live replicas make those hashes with.
CREATE UNLOGGED TABLE fingerprint_keys (
    key_id  bytea       PRIMARY KEY,
    seen_at timestamptz NOT NULL,
    CONSTRAINT fingerprint_keys_id CHECK (length(key_id) = 8)
);
COMMENT ON TABLE fingerprint_keys IS 'Ids of the fingerprint keys of live replicas, and when each was last told; not a projection.';

-- +goose Down
DROP TABLE fingerprint_keys, secret_fingerprints;
