package api

import "time"

// Queue is what waits in a queue that workflows name, and who takes it.
type Queue struct {
	Queue            string       `json:"queue" example:"default"`
	Waiting          uint64       `json:"waiting" doc:"Starts that no runner was given yet, of the group that is furthest ahead. Without a group: all that the stream holds, with which a new group begins."`
	OldestAcceptedAt time.Time    `json:"oldestAcceptedAt,omitzero" doc:"When the oldest of those was accepted. Absent: none waits."`
	Shared           bool         `json:"shared,omitempty" doc:"True: workflows of accounts that the caller does not see name it, too, so what waits is not told: waiting is 0 everywhere. Absent: false."`
	Groups           []QueueGroup `json:"groups" nullable:"false" doc:"The groups of runners, by name."`
}

// QueueGroup is a group of runners, which share a queue's executions.
type QueueGroup struct {
	Group      string    `json:"group" doc:"Its name; of a consumer that is not the runner kit's, the consumer's." example:"main"`
	Members    int       `json:"members" doc:"Runners that are there. One that was killed is missed after 12 s at the latest. Of runners that do not say that they are there, how many requests for work are waiting."`
	Waiting    uint64    `json:"waiting" doc:"Starts that no member was given. Without members: and those that were given to one, and not finished."`
	LastSeenAt time.Time `json:"lastSeenAt,omitzero" doc:"When a member was there last. Absent: not known."`
}
