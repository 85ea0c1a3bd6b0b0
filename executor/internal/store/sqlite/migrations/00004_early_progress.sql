-- +goose Up

-- What runners reported of executions that are not recorded yet. Positions grow in the order in which it came. Times are
-- microseconds since 1970, UTC.
CREATE TABLE early_progress (
    execution_id TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    workflow_id  TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    error        TEXT    NOT NULL,
    output       BLOB,
    position     INTEGER NOT NULL,
    kept_at      INTEGER NOT NULL,
    PRIMARY KEY (execution_id, queue, workflow_id, status)
) STRICT;
CREATE INDEX early_progress_by_position ON early_progress (position);

-- Reports have a stream of their own, with sequences of its own: the subject says which one it is.
CREATE TABLE unreadable_of_all (
    stream_sequence INTEGER NOT NULL,
    subject         TEXT    NOT NULL,
    reason          TEXT    NOT NULL,
    at              INTEGER NOT NULL,
    PRIMARY KEY (stream_sequence, subject)
) STRICT;
INSERT INTO unreadable_of_all SELECT stream_sequence, subject, reason, at FROM unreadable;
DROP TABLE unreadable;
ALTER TABLE unreadable_of_all RENAME TO unreadable;
CREATE INDEX unreadable_by_time ON unreadable (at);

-- +goose Down
DELETE FROM unreadable WHERE subject LIKE 'executions.progress.%';
CREATE TABLE unreadable_of_one (
    stream_sequence INTEGER NOT NULL PRIMARY KEY,
    subject         TEXT    NOT NULL,
    reason          TEXT    NOT NULL,
    at              INTEGER NOT NULL
) STRICT;
INSERT INTO unreadable_of_one SELECT stream_sequence, subject, reason, at FROM unreadable;
DROP TABLE unreadable;
ALTER TABLE unreadable_of_one RENAME TO unreadable;
CREATE INDEX unreadable_by_time ON unreadable (at);
DROP TABLE early_progress;
