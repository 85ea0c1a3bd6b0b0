-- +goose Up
ALTER TABLE executions ADD COLUMN replay_of TEXT NOT NULL DEFAULT '';

-- Microseconds since 1970, UTC; NULL: nobody dismissed it.
ALTER TABLE executions ADD COLUMN dismissed_at INTEGER;
ALTER TABLE unreadable ADD COLUMN dismissed_at INTEGER;

-- What failed and was neither requeued nor dismissed: the list of dead letters.
DROP INDEX executions_dead;
DROP INDEX executions_dead_by_workflow;
CREATE INDEX executions_dead ON executions (accepted_at, id)
    WHERE status = 'failed' AND requeued_as = '' AND dismissed_at IS NULL;
CREATE INDEX executions_dead_by_workflow ON executions (workflow_id, accepted_at, id)
    WHERE status = 'failed' AND requeued_as = '' AND dismissed_at IS NULL;

-- +goose Down
DROP INDEX executions_dead_by_workflow;
DROP INDEX executions_dead;
ALTER TABLE unreadable DROP COLUMN dismissed_at;
ALTER TABLE executions DROP COLUMN dismissed_at;
ALTER TABLE executions DROP COLUMN replay_of;
CREATE INDEX executions_dead ON executions (accepted_at, id) WHERE status = 'failed' AND requeued_as = '';
CREATE INDEX executions_dead_by_workflow ON executions (workflow_id, accepted_at, id) WHERE status = 'failed' AND requeued_as = '';
