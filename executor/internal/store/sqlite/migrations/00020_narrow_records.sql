-- Half of what hookstart cost was its record: 20 columns of text and indexes with IDs of 36 characters in random order. A
-- record is narrow now. Rows are in the order of arrival; an ID has 16 bytes; what many records have in common is kept once.
-- What the old table holds is carried over when the database is opened, in transactions of their own: see carry.go.

-- +goose Up
ALTER TABLE executions RENAME TO executions_wide;
DROP INDEX executions_by_workflow;
DROP INDEX executions_by_delivery;
DROP INDEX executions_in_trouble;
DROP INDEX executions_dead;
DROP INDEX executions_dead_by_workflow;

-- Dictionaries: rows are added, never changed or deleted, so that processes can remember their numbers.
CREATE TABLE workflows (
    workflow    INTEGER PRIMARY KEY,
    workflow_id TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE origins (
    origin     INTEGER PRIMARY KEY,
    workflow   INTEGER NOT NULL REFERENCES workflows,
    node_id    TEXT    NOT NULL,
    account_id TEXT    NOT NULL,
    queue      TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    token_id   TEXT    NOT NULL,
    sender     TEXT    NOT NULL,
    verified   INTEGER NOT NULL,
    UNIQUE (workflow, node_id, account_id, queue, source, token_id, sender, verified)
) STRICT;

CREATE TABLE executions (
    seq             INTEGER PRIMARY KEY, -- the order of arrival
    id              BLOB    NOT NULL,    -- the 16 bytes of the UUID
    workflow        INTEGER NOT NULL,
    origin          INTEGER NOT NULL,
    status          INTEGER NOT NULL,    -- see statusCode
    accepted_at     INTEGER NOT NULL,    -- microseconds since 1970, UTC
    recorded_after  INTEGER NOT NULL,    -- microseconds after accepted_at, as the next two
    started_after   INTEGER,
    finished_after  INTEGER,
    body_bytes      INTEGER NOT NULL,
    stream_sequence INTEGER NOT NULL,
    content_type    TEXT,                -- NULL: application/json
    delivery_id     TEXT,                -- one whose hash is the ID
    other_delivery  TEXT,                -- any other one
    rerun_of        TEXT,
    replay_of       TEXT,
    requeued_as     TEXT,
    dismissed_at    INTEGER,             -- microseconds since 1970, UTC
    error           TEXT,
    output          BLOB
) STRICT;
CREATE UNIQUE INDEX executions_id ON executions (id);
-- Every list is in the order of (accepted_at, id), read backwards. Few records have the same accepted_at: they are sorted.
CREATE INDEX executions_time ON executions (accepted_at);
CREATE INDEX executions_workflow ON executions (workflow, accepted_at);
-- A delivery ID whose hash is the ID is found by that, at the nodes of origins.
CREATE INDEX executions_delivery ON executions (other_delivery) WHERE other_delivery IS NOT NULL;
-- What an operator looks for among many that went well. It costs nothing until a record fails. 4 is failed, 5 rejected.
CREATE INDEX executions_trouble ON executions (status, accepted_at) WHERE status IN (4, 5);
CREATE INDEX executions_dead_letters ON executions (accepted_at) WHERE status = 4 AND requeued_as IS NULL AND dismissed_at IS NULL;
CREATE INDEX executions_dead_letters_of ON executions (workflow, accepted_at) WHERE status = 4 AND requeued_as IS NULL AND dismissed_at IS NULL;

ALTER TABLE duplicate_counts RENAME TO duplicate_counts_wide;
DROP INDEX duplicate_counts_by_time;
CREATE TABLE duplicate_counts (
    id         BLOB    NOT NULL PRIMARY KEY, -- of the execution, as in executions
    duplicates INTEGER NOT NULL,
    counted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO duplicate_counts SELECT unhex(execution_id, '-'), duplicates, counted_at FROM duplicate_counts_wide
    WHERE length(unhex(execution_id, '-')) = 16;
DROP TABLE duplicate_counts_wide;
CREATE INDEX duplicate_counts_by_time ON duplicate_counts (counted_at);

-- +goose Down
CREATE TABLE executions_narrow AS SELECT e.*, w.workflow_id, o.node_id, o.account_id, o.queue, o.source, o.token_id,
    lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)) AS uuid
    FROM executions e JOIN origins o USING (origin) JOIN workflows w ON w.workflow = e.workflow;
DROP TABLE executions;
DROP TABLE origins;
DROP TABLE workflows;
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
    output          BLOB,
    requeued_as     TEXT    NOT NULL DEFAULT '',
    replay_of       TEXT    NOT NULL DEFAULT '',
    dismissed_at    INTEGER
) STRICT;
INSERT INTO executions SELECT uuid, account_id, workflow_id, node_id, queue, source,
    CASE status WHEN 1 THEN 'queued' WHEN 2 THEN 'running' WHEN 3 THEN 'succeeded' WHEN 4 THEN 'failed' WHEN 5 THEN 'rejected' ELSE '' END,
    coalesce(delivery_id, other_delivery, ''), coalesce(rerun_of, ''), token_id, accepted_at, accepted_at + recorded_after, accepted_at + started_after,
    accepted_at + finished_after, coalesce(content_type, 'application/json'), body_bytes, stream_sequence, coalesce(error, ''), output, coalesce(requeued_as, ''),
    coalesce(replay_of, ''), dismissed_at
    FROM executions_narrow;
DROP TABLE executions_narrow;
CREATE INDEX executions_by_time ON executions (accepted_at, id);
CREATE INDEX executions_by_workflow ON executions (workflow_id, accepted_at, id);
CREATE INDEX executions_by_delivery ON executions (delivery_id, accepted_at, id) WHERE delivery_id <> '';
CREATE INDEX executions_in_trouble ON executions (status, accepted_at, id) WHERE status IN ('failed', 'rejected');
CREATE INDEX executions_dead ON executions (accepted_at, id) WHERE status = 'failed' AND requeued_as = '' AND dismissed_at IS NULL;
CREATE INDEX executions_dead_by_workflow ON executions (workflow_id, accepted_at, id) WHERE status = 'failed' AND requeued_as = '' AND dismissed_at IS NULL;
CREATE TABLE duplicate_counts_wide (
    execution_id TEXT    NOT NULL PRIMARY KEY,
    duplicates   INTEGER NOT NULL,
    counted_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO duplicate_counts_wide SELECT lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)),
    duplicates, counted_at FROM duplicate_counts;
DROP TABLE duplicate_counts;
ALTER TABLE duplicate_counts_wide RENAME TO duplicate_counts;
CREATE INDEX duplicate_counts_by_time ON duplicate_counts (counted_at);
