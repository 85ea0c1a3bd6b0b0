-- A final report names the beginning, too: a quick execution has no other one. Microseconds since 1970, UTC.

-- +goose Up
ALTER TABLE early_progress ADD COLUMN started_at INTEGER;

-- +goose Down
ALTER TABLE early_progress DROP COLUMN started_at;
