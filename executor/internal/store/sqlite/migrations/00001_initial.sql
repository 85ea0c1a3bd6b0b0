-- Times are microseconds since 1970, UTC.

-- +goose Up
CREATE TABLE executions (
    id              TEXT    NOT NULL PRIMARY KEY,
    account_id      TEXT    NOT NULL,
    workflow_id     TEXT    NOT NULL,
    node_id         TEXT    NOT NULL,
    queue           TEXT    NOT NULL,
    source          TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    delivery_id     TEXT    NOT NULL,
    rerun_of        TEXT    NOT NULL,
    token_id        TEXT    NOT NULL,
    accepted_at     INTEGER NOT NULL,
    recorded_at     INTEGER NOT NULL,
    started_at      INTEGER,
    finished_at     INTEGER,
    content_type    TEXT    NOT NULL,
    body_bytes      INTEGER NOT NULL,
    stream_sequence INTEGER NOT NULL,
    error           TEXT    NOT NULL,
    output          BLOB
) STRICT;

-- Every list is in the order of (accepted_at, id), read backwards.
CREATE INDEX executions_by_time ON executions (accepted_at, id);
CREATE INDEX executions_by_workflow ON executions (workflow_id, accepted_at, id);
CREATE INDEX executions_by_delivery ON executions (delivery_id, accepted_at, id) WHERE delivery_id <> '';
-- What an operator looks for among many that went well. It costs nothing until a record fails.
CREATE INDEX executions_in_trouble ON executions (status, accepted_at, id) WHERE status IN ('failed', 'rejected');

-- Apart from executions: a count can come before its record, and adding to it writes no record.
CREATE TABLE duplicate_counts (
    execution_id TEXT    NOT NULL PRIMARY KEY,
    duplicates   INTEGER NOT NULL,
    counted_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX duplicate_counts_by_time ON duplicate_counts (counted_at);

CREATE TABLE duplicate_reports (
    report_id   TEXT    NOT NULL PRIMARY KEY,
    reported_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX duplicate_reports_by_time ON duplicate_reports (reported_at);

CREATE TABLE token_uses (
    token_id     TEXT    NOT NULL PRIMARY KEY,
    last_used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE unreadable (
    stream_sequence INTEGER NOT NULL PRIMARY KEY,
    subject         TEXT    NOT NULL,
    reason          TEXT    NOT NULL,
    at              INTEGER NOT NULL
) STRICT;
CREATE INDEX unreadable_by_time ON unreadable (at);

-- +goose Down
DROP TABLE unreadable;
DROP TABLE token_uses;
DROP TABLE duplicate_reports;
DROP TABLE duplicate_counts;
DROP TABLE executions;
