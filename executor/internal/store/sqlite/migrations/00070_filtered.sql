-- The requests that did not meet the filter of a trigger node: how many, and the last ones as JSON.

-- +goose Up
CREATE TABLE filtered (
    workflow_id   TEXT    NOT NULL,
    node_id       TEXT    NOT NULL,
    filtered      INTEGER NOT NULL,
    last_requests TEXT    NOT NULL,
    PRIMARY KEY (workflow_id, node_id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE filtered;
