-- A filter by account or source reads the index alone until it finds a record: 1,000,000 records that are not the account's are
-- skipped in a fraction of the time that it takes to read them.

-- +goose Up
DROP INDEX executions_time;
CREATE INDEX executions_time ON executions (accepted_at, origin);

-- +goose Down
DROP INDEX executions_time;
CREATE INDEX executions_time ON executions (accepted_at);
