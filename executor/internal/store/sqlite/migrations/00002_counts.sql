-- What ingresses and executors count by the minute. Times are microseconds since 1970, UTC.

-- +goose Up
CREATE TABLE minutes (
    minute INTEGER NOT NULL,
    kind   TEXT    NOT NULL,
    n      INTEGER NOT NULL,
    PRIMARY KEY (minute, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE refusals (
    workflow_id TEXT    NOT NULL,
    minute      INTEGER NOT NULL,
    code        TEXT    NOT NULL,
    n           INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    body_bytes  INTEGER NOT NULL,
    user_agent  TEXT    NOT NULL,
    PRIMARY KEY (workflow_id, minute, code)
) STRICT, WITHOUT ROWID;
CREATE INDEX refusals_by_minute ON refusals (minute);

-- +goose Down
DROP TABLE refusals;
DROP TABLE minutes;
