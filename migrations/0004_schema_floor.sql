-- +goose Up

-- A migration that takes something away which an earlier release still uses ends
-- with: UPDATE schema_floor SET oldest = <number of the migration from which on
-- releases do without it>;
CREATE TABLE schema_floor (
    only_row boolean PRIMARY KEY DEFAULT true,
    oldest   bigint  NOT NULL,
    CONSTRAINT schema_floor_has_one_row CHECK (only_row)
);
COMMENT ON TABLE schema_floor IS 'The oldest release that may work on this schema, by the number of the last migration it brings. An older one refuses to start.';
INSERT INTO schema_floor (oldest) VALUES (1);

-- +goose Down
DROP TABLE schema_floor;
