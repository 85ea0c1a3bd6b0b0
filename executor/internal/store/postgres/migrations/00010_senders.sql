-- +goose Up
ALTER TABLE executions ADD COLUMN sender text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN verified boolean NOT NULL DEFAULT false;

-- What was last seen of the sender of a trigger node; NULL: never.
CREATE TABLE senders_seen (
    workflow_id    text COLLATE "C" NOT NULL,
    node_id        text COLLATE "C" NOT NULL,
    verified_at    timestamptz,
    handshake_at   timestamptz,
    refused_at     timestamptz,
    refused_code   text   NOT NULL,
    refused_reason text   NOT NULL,
    deliveries     bigint NOT NULL,
    without_id     bigint NOT NULL,
    refused        bigint NOT NULL,
    PRIMARY KEY (workflow_id, node_id)
);

-- +goose Down
DROP TABLE senders_seen;
ALTER TABLE executions DROP COLUMN verified;
ALTER TABLE executions DROP COLUMN sender;
