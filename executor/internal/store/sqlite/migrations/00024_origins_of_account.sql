-- The origins of an account and of a source are looked up for each list that is filtered by them.

-- +goose Up
CREATE INDEX origins_account ON origins (account_id, source);
CREATE INDEX origins_source ON origins (source);

-- +goose Down
DROP INDEX origins_account;
DROP INDEX origins_source;
