-- The operator events of accounts. A cause is a happening of which operators are told; an event tells of one or more, and
-- starts an execution; a condition is a state that operators were told of, until it ends. One executor looks for conditions.

-- +goose Up
CREATE TABLE event_causes (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    account_id   text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    workflow_id  text COLLATE "C" NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL,
    about        text COLLATE "C" NOT NULL
);
CREATE INDEX event_causes_by_time ON event_causes (at, id);
CREATE TABLE operator_events (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    account_id   text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    workflow_id  text COLLATE "C" NOT NULL,
    node_id      text COLLATE "C" NOT NULL,
    input        text COLLATE "C" NOT NULL,
    decided_at   timestamptz NOT NULL,
    published_at timestamptz
);
CREATE INDEX operator_events_by_time ON operator_events (decided_at, id);
CREATE TABLE event_conditions (
    account_id text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    subject    text COLLATE "C" NOT NULL,
    since      timestamptz NOT NULL,
    PRIMARY KEY (account_id, kind, subject)
);
CREATE TABLE event_lead (
    caller text COLLATE "C" NOT NULL,
    until  timestamptz NOT NULL
);
INSERT INTO event_lead VALUES ('', '1970-01-01T00:00:00Z');
INSERT INTO harmless VALUES (80);

-- +goose Down
DELETE FROM harmless WHERE version = 80;
DROP TABLE event_lead;
DROP TABLE event_conditions;
DROP TABLE operator_events;
DROP TABLE event_causes;
