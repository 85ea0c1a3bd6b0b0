-- When an operator asked that an execution ends. Its index finds those that are canceled, too: they always have it. An
-- index on the status would be written to by every step.

-- +goose Up
ALTER TABLE executions ADD COLUMN cancel_requested_at timestamptz;
CREATE INDEX executions_canceled ON executions (accepted_at) WHERE cancel_requested_at IS NOT NULL;

-- +goose Down
DROP INDEX executions_canceled;
ALTER TABLE executions DROP COLUMN cancel_requested_at;
