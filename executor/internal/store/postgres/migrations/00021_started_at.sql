-- A final report names the beginning, too: a quick execution has no other one.

-- +goose Up
ALTER TABLE early_progress ADD COLUMN started_at timestamptz;

-- +goose Down
ALTER TABLE early_progress DROP COLUMN started_at;
