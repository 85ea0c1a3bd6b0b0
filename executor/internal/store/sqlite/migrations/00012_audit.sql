-- +goose Up

-- Who changed what. Times are microseconds since 1970, UTC; changes are a JSON text, or empty.
CREATE TABLE audit (
    id          TEXT    NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL,
    actor_kind  TEXT    NOT NULL,
    actor_id    TEXT    NOT NULL,
    actor_name  TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    account_id  TEXT    NOT NULL,
    workflow_id TEXT    NOT NULL,
    node_id     TEXT    NOT NULL,
    changes     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_by_time ON audit (at, id);
CREATE INDEX audit_by_account ON audit (account_id, at, id);
CREATE INDEX audit_by_workflow ON audit (workflow_id, at, id);

-- +goose Down
DROP TABLE audit;
