-- The migrations that programs of the version before can live with. Such a program looks here before each of its transactions,
-- and waits if the database was migrated otherwise.

-- +goose Up
CREATE TABLE harmless (version bigint PRIMARY KEY);
INSERT INTO harmless VALUES (50);

-- +goose Down
DROP TABLE harmless;
