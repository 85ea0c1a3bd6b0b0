-- Half of what hookstart cost was its record: more than 20 columns of text and indexes with IDs of 36 characters in random
-- order. A record is narrow now, as in SQLite: an ID has 16 bytes, and what many records have in common is kept once.
-- What the old table holds is carried over when the database is opened, in transactions of their own: see carry.go.

-- +goose Up
ALTER TABLE executions RENAME TO executions_wide;
DROP INDEX executions_by_workflow; -- executions_by_time stays: records are carried over in its order
DROP INDEX executions_by_delivery;
DROP INDEX executions_in_trouble;
DROP INDEX executions_dead;
DROP INDEX executions_dead_by_workflow;

-- Dictionaries: rows are added, never changed or deleted, so that processes can remember their numbers.
CREATE TABLE workflows (
    workflow    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow_id text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE origins (
    origin     integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow   integer NOT NULL REFERENCES workflows,
    node_id    text COLLATE "C" NOT NULL,
    account_id text COLLATE "C" NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    source     text COLLATE "C" NOT NULL,
    token_id   text COLLATE "C" NOT NULL,
    sender     text COLLATE "C" NOT NULL,
    verified   boolean NOT NULL,
    UNIQUE (workflow, node_id, account_id, queue, source, token_id, sender, verified)
);

-- The widest columns first: nothing is lost to alignment.
CREATE TABLE executions (
    accepted_at     timestamptz NOT NULL,
    recorded_after  bigint      NOT NULL, -- microseconds after accepted_at, as the next two
    started_after   bigint,
    finished_after  bigint,
    body_bytes      bigint      NOT NULL,
    stream_sequence bigint      NOT NULL,
    dismissed_at    timestamptz,
    workflow        integer     NOT NULL,
    origin          integer     NOT NULL,
    status          smallint    NOT NULL, -- see relational.StatusCode: 4 is failed, 5 rejected
    -- What an operator looks for among many that went well. Not an index on status itself: then every step would write to all
    -- indexes; so only a failure does.
    trouble         smallint GENERATED ALWAYS AS (CASE WHEN status IN (4, 5) THEN status END) STORED,
    id              bytea       NOT NULL, -- the 16 bytes of the UUID
    content_type    text,                 -- NULL: application/json
    delivery_id     text COLLATE "C",     -- one whose hash is the ID
    other_delivery  text COLLATE "C",     -- any other one
    rerun_of        text,
    replay_of       text,
    requeued_as     text,
    error           text,
    output          bytea
) WITH (fillfactor = 90); -- room on the page for the next state of a record
CREATE UNIQUE INDEX executions_id ON executions (id);
-- Every list is in the order of (accepted_at, id), read backwards. Few records have the same accepted_at: they are sorted.
CREATE INDEX executions_time ON executions (accepted_at);
CREATE INDEX executions_workflow ON executions (workflow, accepted_at);
-- A delivery ID whose hash is the ID is found by that, at the nodes of origins.
CREATE INDEX executions_delivery ON executions (other_delivery) WHERE other_delivery IS NOT NULL;
CREATE INDEX executions_trouble ON executions (trouble, accepted_at) WHERE trouble IS NOT NULL;
CREATE INDEX executions_dead_letters ON executions (accepted_at) WHERE trouble = 4 AND requeued_as IS NULL AND dismissed_at IS NULL;
CREATE INDEX executions_dead_letters_of ON executions (workflow, accepted_at) WHERE trouble = 4 AND requeued_as IS NULL AND dismissed_at IS NULL;

ALTER TABLE duplicate_counts RENAME TO duplicate_counts_wide;
DROP INDEX duplicate_counts_by_time;
CREATE TABLE duplicate_counts (
    id         bytea       NOT NULL PRIMARY KEY, -- of the execution, as in executions
    duplicates bigint      NOT NULL,
    counted_at timestamptz NOT NULL
);
INSERT INTO duplicate_counts SELECT decode(replace(execution_id, '-', ''), 'hex'), duplicates, counted_at FROM duplicate_counts_wide
    WHERE execution_id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$';
DROP TABLE duplicate_counts_wide;
CREATE INDEX duplicate_counts_by_time ON duplicate_counts (counted_at);

-- +goose Down
CREATE FUNCTION pg_temp.uuid_of(id bytea) RETURNS text LANGUAGE sql AS
    $$ SELECT CASE WHEN length(id) = 16 THEN encode(id, 'hex')::uuid::text ELSE convert_from(rtrim(id, '\x00'), 'UTF8') END $$;
ALTER TABLE executions RENAME TO executions_narrow;
CREATE TABLE executions (
    id              text COLLATE "C" NOT NULL PRIMARY KEY,
    account_id      text        NOT NULL,
    workflow_id     text COLLATE "C" NOT NULL,
    node_id         text        NOT NULL,
    queue           text        NOT NULL,
    source          text        NOT NULL,
    status          text COLLATE "C" NOT NULL,
    delivery_id     text COLLATE "C" NOT NULL,
    rerun_of        text        NOT NULL,
    token_id        text        NOT NULL,
    accepted_at     timestamptz NOT NULL,
    recorded_at     timestamptz NOT NULL,
    started_at      timestamptz,
    finished_at     timestamptz,
    content_type    text        NOT NULL,
    body_bytes      bigint      NOT NULL,
    stream_sequence bigint      NOT NULL,
    error           text        NOT NULL,
    output          bytea,
    trouble         text COLLATE "C" GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'rejected') THEN status END) STORED,
    requeued_as     text COLLATE "C" NOT NULL DEFAULT '',
    sender          text COLLATE "C" NOT NULL DEFAULT '',
    verified        boolean     NOT NULL DEFAULT false,
    replay_of       text COLLATE "C" NOT NULL DEFAULT '',
    dismissed_at    timestamptz
) WITH (fillfactor = 80);
INSERT INTO executions (id, account_id, workflow_id, node_id, queue, source, status, delivery_id, rerun_of, token_id, accepted_at, recorded_at,
    started_at, finished_at, content_type, body_bytes, stream_sequence, error, output, requeued_as, sender, verified, replay_of, dismissed_at)
    SELECT pg_temp.uuid_of(e.id), o.account_id, w.workflow_id, o.node_id, o.queue, o.source,
        CASE e.status WHEN 1 THEN 'queued' WHEN 2 THEN 'running' WHEN 3 THEN 'succeeded' WHEN 4 THEN 'failed' WHEN 5 THEN 'rejected' ELSE '' END,
        coalesce(e.delivery_id, e.other_delivery, ''), coalesce(e.rerun_of, ''), o.token_id, e.accepted_at,
        e.accepted_at + e.recorded_after * interval '1 microsecond', e.accepted_at + e.started_after * interval '1 microsecond',
        e.accepted_at + e.finished_after * interval '1 microsecond', coalesce(e.content_type, 'application/json'), e.body_bytes, e.stream_sequence,
        coalesce(e.error, ''), e.output, coalesce(e.requeued_as, ''), o.sender, o.verified, coalesce(e.replay_of, ''), e.dismissed_at
    FROM executions_narrow e JOIN origins o USING (origin) JOIN workflows w ON w.workflow = e.workflow;
DROP TABLE executions_narrow;
DROP TABLE origins;
DROP TABLE workflows;
CREATE INDEX executions_by_time ON executions (accepted_at, id);
CREATE INDEX executions_by_workflow ON executions (workflow_id, accepted_at, id);
CREATE INDEX executions_by_delivery ON executions (delivery_id, accepted_at, id) WHERE delivery_id <> '';
CREATE INDEX executions_in_trouble ON executions (trouble, accepted_at, id) WHERE trouble IS NOT NULL;
CREATE INDEX executions_dead ON executions (accepted_at, id) WHERE trouble = 'failed' AND requeued_as = '' AND dismissed_at IS NULL;
CREATE INDEX executions_dead_by_workflow ON executions (workflow_id, accepted_at, id) WHERE trouble = 'failed' AND requeued_as = '' AND dismissed_at IS NULL;
ALTER TABLE duplicate_counts RENAME TO duplicate_counts_narrow;
DROP INDEX duplicate_counts_by_time;
CREATE TABLE duplicate_counts (
    execution_id text COLLATE "C" NOT NULL PRIMARY KEY,
    duplicates   bigint      NOT NULL,
    counted_at   timestamptz NOT NULL
);
INSERT INTO duplicate_counts SELECT pg_temp.uuid_of(id), duplicates, counted_at FROM duplicate_counts_narrow;
DROP TABLE duplicate_counts_narrow;
CREATE INDEX duplicate_counts_by_time ON duplicate_counts (counted_at);
DROP FUNCTION pg_temp.uuid_of(bytea);
