-- +goose Up

-- The identity of the installation: one row, or none.
CREATE TABLE installation (
    only_one INTEGER NOT NULL PRIMARY KEY CHECK (only_one = 1),
    id       TEXT    NOT NULL
) STRICT;

-- A copy of every record of the registry, as NATS has it. A record that was deleted stays, so that no earlier revision comes back.
CREATE TABLE registry_copy (
    bucket   TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    deleted  INTEGER NOT NULL,
    data     BLOB    NOT NULL,
    PRIMARY KEY (bucket, key)
) STRICT, WITHOUT ROWID;

-- Up to which revision the copy has each bucket, and when NATS stored that one: microseconds since 1970, UTC.
CREATE TABLE registry_position (
    bucket   TEXT    NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL,
    at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE registry_position;
DROP TABLE registry_copy;
DROP TABLE installation;
