package api

import "time"

// Size describes how large an installation is: its database, its workflows, and its requests in the
// last week.
type Size struct {
	// At is when the values were measured, according to the executor's clock.
	At time.Time `json:"at" doc:"When this was measured, by the executor's clock."`
	// Hours holds the hours of the last week that had requests. It is never null.
	Hours    []SizeHour   `json:"hours" nullable:"false" doc:"The hours of the last 7 days in which there were requests, the oldest first."`
	Database SizeDatabase `json:"database"`
	// Workflows is the number of workflows.
	Workflows         int64 `json:"workflows"`
	WorkflowsLastWeek int64 `json:"workflowsLastWeek" doc:"How many of them were made in the last 7 days."`
}

// SizeHour holds the numbers of requests in one hour, for all accounts.
type SizeHour struct {
	At           time.Time `json:"at" doc:"The hour's beginning."`
	Accepted     int64     `json:"accepted" doc:"Requests that started an execution."`
	Deduplicated int64     `json:"deduplicated" doc:"Repeats, which started nothing."`
	Refused      int64     `json:"refused" doc:"Requests that were refused."`
}

// SizeDatabase describes the size of the database, the free space on its disk, and its records.
type SizeDatabase struct {
	Kind          string `json:"kind" enum:"sqlite,postgres"`
	Bytes         int64  `json:"bytes" doc:"All tables and indexes, with the space in them that is free."`
	ReusableBytes int64  `json:"reusableBytes" doc:"The part of bytes that is free for new records; 0 also if that is not known."`
	// FreeBytes is the free space on the database's disk, in bytes. nil means unknown.
	FreeBytes        *int64    `json:"freeBytes,omitempty" doc:"Free space on the disk of the database. Absent: not known, because the database is on another machine."`
	Records          int64     `json:"records" doc:"How many records there are; in a large database an estimate."`
	OldestAcceptedAt time.Time `json:"oldestAcceptedAt,omitzero" doc:"When the oldest recorded execution was accepted. Absent: there is none."`
	RetentionSeconds int64     `json:"retentionSeconds" doc:"For how long records are kept."`
}
