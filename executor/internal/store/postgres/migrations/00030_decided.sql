-- The messages of each stream that are recorded, or put aside: how far this database is. Rows are added in the transaction that
-- records the messages, and merged now and then.

-- +goose Up
CREATE TABLE decided (
    stream         text   NOT NULL,
    created        text   NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence  bigint NOT NULL
);

-- +goose Down
DROP TABLE decided;
