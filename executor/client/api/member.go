package api

// Members is the list of running executors and ingresses.
type Members struct {
	// Items holds the members. It is never null.
	Items []Member `json:"items" nullable:"false"`
	// Database is the schema version of the database. 0 means that it could not be read.
	Database int64 `json:"database,omitempty" doc:"The schema version of the database. Absent: the database cannot be reached."`
}

// Member is a running executor or ingress.
type Member struct {
	Instance         string   `json:"instance" doc:"The ID of the process. Each start of a program has a new one."`
	Role             string   `json:"role" doc:"The kind of program: executor or ingress."`
	Version          string   `json:"version" doc:"The program's version."`
	Schema           int64    `json:"schema,omitempty" doc:"The schema version that the executor works with. Absent for an ingress."`
	KeyIDs           []string `json:"keyIds" nullable:"false" doc:"The IDs of the keys in its --secrets-key-file."`
	RegistryRevision uint64   `json:"registryRevision" doc:"The last revision of the registry that the process has applied."`
}
