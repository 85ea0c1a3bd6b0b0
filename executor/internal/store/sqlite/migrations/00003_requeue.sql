-- +goose Up
ALTER TABLE executions ADD COLUMN requeued_as TEXT NOT NULL DEFAULT '';

-- What failed and was not requeued: the list of dead letters. They cost nothing until a record fails.
CREATE INDEX executions_dead ON executions (accepted_at, id) WHERE status = 'failed' AND requeued_as = '';
CREATE INDEX executions_dead_by_workflow ON executions (workflow_id, accepted_at, id) WHERE status = 'failed' AND requeued_as = '';

-- +goose Down
DROP INDEX executions_dead_by_workflow;
DROP INDEX executions_dead;
ALTER TABLE executions DROP COLUMN requeued_as;
