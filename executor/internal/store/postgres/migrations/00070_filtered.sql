-- The requests that did not meet the filter of a trigger node: how many, and the last ones as JSON.

-- +goose Up
CREATE TABLE filtered (
    workflow_id   text COLLATE "C" NOT NULL,
    node_id       text COLLATE "C" NOT NULL,
    filtered      bigint NOT NULL,
    last_requests text   NOT NULL,
    PRIMARY KEY (workflow_id, node_id)
);

-- +goose Down
DROP TABLE filtered;
