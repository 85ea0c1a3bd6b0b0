-- +goose Up

-- What runners reported of executions that are not recorded yet. Positions grow in the order in which it came.
CREATE TABLE early_progress (
    execution_id text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    workflow_id  text COLLATE "C" NOT NULL,
    status       text COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL,
    error        text        NOT NULL,
    output       bytea,
    position     bigint      NOT NULL,
    kept_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (execution_id, queue, workflow_id, status)
);
CREATE INDEX early_progress_by_position ON early_progress (position);

-- Reports have a stream of their own, with sequences of its own: the subject says which one it is.
ALTER TABLE unreadable DROP CONSTRAINT unreadable_pkey, ADD PRIMARY KEY (stream_sequence, subject);

-- +goose Down
DELETE FROM unreadable WHERE subject LIKE 'executions.progress.%';
ALTER TABLE unreadable DROP CONSTRAINT unreadable_pkey, ADD PRIMARY KEY (stream_sequence);
DROP TABLE early_progress;
