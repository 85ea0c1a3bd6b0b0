-- The number of the attempt that runs or ended the execution; NULL, or 0: not known.

-- +goose Up
ALTER TABLE executions ADD COLUMN attempts integer;
ALTER TABLE early_progress ADD COLUMN attempt integer NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE executions DROP COLUMN attempts;
ALTER TABLE early_progress DROP COLUMN attempt;
