-- What ingresses and executors count by the minute.

-- +goose Up

-- Every batch adds to the row of its minute. An executor has rows of its own, so that none waits for another one's
-- commit; writer is a number that it drew.
CREATE TABLE minutes (
    minute timestamptz NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    writer smallint    NOT NULL,
    n      bigint      NOT NULL,
    PRIMARY KEY (minute, kind, writer)
);

CREATE TABLE refusals (
    workflow_id text COLLATE "C" NOT NULL,
    minute      timestamptz NOT NULL,
    code        text COLLATE "C" NOT NULL,
    n           bigint      NOT NULL,
    last_at     timestamptz NOT NULL,
    body_bytes  bigint      NOT NULL,
    user_agent  text        NOT NULL,
    PRIMARY KEY (workflow_id, minute, code)
);
CREATE INDEX refusals_by_minute ON refusals (minute);

-- +goose Down
DROP TABLE refusals;
DROP TABLE minutes;
