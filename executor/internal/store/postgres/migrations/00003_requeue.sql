-- +goose Up
ALTER TABLE executions ADD COLUMN requeued_as text COLLATE "C" NOT NULL DEFAULT '';

-- What failed and was not requeued: the list of dead letters. By trouble, not by status: only a failure writes it.
CREATE INDEX executions_dead ON executions (accepted_at, id) WHERE trouble = 'failed' AND requeued_as = '';
CREATE INDEX executions_dead_by_workflow ON executions (workflow_id, accepted_at, id) WHERE trouble = 'failed' AND requeued_as = '';

-- +goose Down
DROP INDEX executions_dead_by_workflow;
DROP INDEX executions_dead;
ALTER TABLE executions DROP COLUMN requeued_as;
