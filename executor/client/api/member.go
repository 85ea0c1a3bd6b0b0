package api

// Members are the running executors and ingresses.
type Members struct {
	// Items holds the members. It is never null.
	Items []Member `json:"items" nullable:"false"`
	// Database is the version of the tables. 0 means that it could not be read.
	Database int64 `json:"database,omitempty" doc:"The version of the database's tables. Absent: the database is away."`
}

// Member is a running executor or ingress.
type Member struct {
	Instance         string   `json:"instance" doc:"Another one after each start."`
	Role             string   `json:"role" doc:"executor or ingress."`
	Version          string   `json:"version" doc:"The program's version."`
	Schema           int64    `json:"schema,omitempty" doc:"Of an executor: the version of the database's tables that it works with."`
	KeyIDs           []string `json:"keyIds" nullable:"false" doc:"The IDs of the keys in its --secrets-key-file."`
	RegistryRevision uint64   `json:"registryRevision" doc:"The revision of the registry that it has applied."`
}
