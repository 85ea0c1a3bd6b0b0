-- The operator events of accounts. A cause is a happening of which operators are told; an event tells of one or more, and
-- starts an execution; a condition is a state that operators were told of, until it ends. One executor looks for conditions.

-- +goose Up
CREATE TABLE event_causes (
    id           TEXT    NOT NULL PRIMARY KEY,
    account_id   TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    workflow_id  TEXT    NOT NULL,
    execution_id TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    about        TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX event_causes_by_time ON event_causes (at, id);
CREATE TABLE operator_events (
    id           TEXT    NOT NULL PRIMARY KEY,
    account_id   TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    workflow_id  TEXT    NOT NULL,
    node_id      TEXT    NOT NULL,
    input        TEXT    NOT NULL,
    decided_at   INTEGER NOT NULL,
    published_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX operator_events_by_time ON operator_events (decided_at, id);
CREATE TABLE event_conditions (
    account_id TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    since      INTEGER NOT NULL,
    PRIMARY KEY (account_id, kind, subject)
) STRICT, WITHOUT ROWID;
CREATE TABLE event_lead (
    caller TEXT    NOT NULL,
    until  INTEGER NOT NULL
) STRICT;
INSERT INTO event_lead VALUES ('', 0);
INSERT INTO harmless VALUES (80);

-- +goose Down
DELETE FROM harmless WHERE version = 80;
DROP TABLE event_lead;
DROP TABLE event_conditions;
DROP TABLE operator_events;
DROP TABLE event_causes;
