-- What was last seen of the sender of a trigger node. Times are microseconds since 1970, UTC; 0: never.

-- +goose Up
CREATE TABLE senders_seen (
    workflow_id    TEXT    NOT NULL,
    node_id        TEXT    NOT NULL,
    verified_at    INTEGER NOT NULL,
    handshake_at   INTEGER NOT NULL,
    refused_at     INTEGER NOT NULL,
    refused_code   TEXT    NOT NULL,
    refused_reason TEXT    NOT NULL,
    deliveries     INTEGER NOT NULL,
    without_id     INTEGER NOT NULL,
    refused        INTEGER NOT NULL,
    PRIMARY KEY (workflow_id, node_id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE senders_seen;
