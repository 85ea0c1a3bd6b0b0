-- +goose Up

-- The identity of the installation: one row, or none.
CREATE TABLE installation (
    only_one smallint NOT NULL PRIMARY KEY CHECK (only_one = 1),
    id       text     NOT NULL
);

-- A copy of every record of the registry, as NATS has it. A record that was deleted stays, so that no earlier revision comes back.
CREATE TABLE registry_copy (
    bucket   text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    deleted  bigint NOT NULL,
    data     bytea  NOT NULL,
    PRIMARY KEY (bucket, key)
);

-- Up to which revision the copy has each bucket, and when NATS stored that one.
CREATE TABLE registry_position (
    bucket   text COLLATE "C" NOT NULL PRIMARY KEY,
    revision bigint      NOT NULL,
    at       timestamptz NOT NULL
);

-- +goose Down
DROP TABLE registry_position;
DROP TABLE registry_copy;
DROP TABLE installation;
