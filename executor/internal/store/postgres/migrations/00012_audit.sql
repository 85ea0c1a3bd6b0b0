-- +goose Up

-- Who changed what. changes are a JSON text, or empty.
CREATE TABLE audit (
    id          text COLLATE "C" NOT NULL PRIMARY KEY,
    at          timestamptz NOT NULL,
    actor_kind  text        NOT NULL,
    actor_id    text        NOT NULL,
    actor_name  text        NOT NULL,
    action      text        NOT NULL,
    account_id  text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    node_id     text        NOT NULL,
    changes     text        NOT NULL
);
CREATE INDEX audit_by_time ON audit (at, id);
CREATE INDEX audit_by_account ON audit (account_id, at, id);
CREATE INDEX audit_by_workflow ON audit (workflow_id, at, id);

-- +goose Down
DROP TABLE audit;
