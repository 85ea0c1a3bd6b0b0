-- Keys are COLLATE "C": they sort by their bytes whatever the database's language is, which
-- is the order that lists promise and in which executors lock rows.

-- +goose Up
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
    -- What an operator looks for among many that went well. Not an index on status itself:
    -- then every step would rewrite all indexes; so only a failure does.
    trouble         text COLLATE "C" GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'rejected') THEN status END) STORED
) WITH (fillfactor = 80); -- room on the page for the next state of a record

-- Every list is in the order of (accepted_at, id), read backwards.
CREATE INDEX executions_by_time ON executions (accepted_at, id);
CREATE INDEX executions_by_workflow ON executions (workflow_id, accepted_at, id);
CREATE INDEX executions_by_delivery ON executions (delivery_id, accepted_at, id) WHERE delivery_id <> '';
CREATE INDEX executions_in_trouble ON executions (trouble, accepted_at, id) WHERE trouble IS NOT NULL;

-- Apart from executions: a count can come before its record, and adding to it writes no record.
CREATE TABLE duplicate_counts (
    execution_id text COLLATE "C" NOT NULL PRIMARY KEY,
    duplicates   bigint      NOT NULL,
    counted_at   timestamptz NOT NULL
);
CREATE INDEX duplicate_counts_by_time ON duplicate_counts (counted_at);

CREATE TABLE duplicate_reports (
    report_id   text COLLATE "C" NOT NULL PRIMARY KEY,
    reported_at timestamptz NOT NULL
);
CREATE INDEX duplicate_reports_by_time ON duplicate_reports (reported_at);

CREATE TABLE token_uses (
    token_id     text COLLATE "C" NOT NULL PRIMARY KEY,
    last_used_at timestamptz NOT NULL
);

CREATE TABLE unreadable (
    stream_sequence bigint      NOT NULL PRIMARY KEY,
    subject         text        NOT NULL,
    reason          text        NOT NULL,
    at              timestamptz NOT NULL
);
CREATE INDEX unreadable_by_time ON unreadable (at);

-- +goose Down
DROP TABLE unreadable;
DROP TABLE token_uses;
DROP TABLE duplicate_reports;
DROP TABLE duplicate_counts;
DROP TABLE executions;
