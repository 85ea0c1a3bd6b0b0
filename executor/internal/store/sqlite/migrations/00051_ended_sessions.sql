-- Sessions of the console that were ended before their time.

-- +goose Up
CREATE TABLE ended_sessions (id text PRIMARY KEY, until INTEGER NOT NULL);
INSERT INTO harmless VALUES (51);

-- +goose Down
DROP TABLE ended_sessions;
DELETE FROM harmless WHERE version = 51;
