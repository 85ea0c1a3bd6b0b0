package api

import "time"

// Queue is the state of a queue that workflows name: the executions that wait in it, and the groups
// that take them.
type Queue struct {
	// Queue is the name of the queue.
	Queue            string       `json:"queue" example:"default"`
	Paused           *QueuePause  `json:"paused,omitempty" doc:"No group of it is handed anything new. Absent: it is not paused."`
	Stream           string       `json:"stream" doc:"The stream that holds its starts." example:"EXECUTIONS"`
	OwnStream        *QueueStream `json:"ownStream,omitempty" doc:"Its own stream. Absent: its starts are in the stream that all queues share."`
	Waiting          uint64       `json:"waiting" doc:"Starts that no runner was given yet, of the group that is furthest ahead. Without a group: all that the stream holds, with which a new group begins."`
	OldestAcceptedAt time.Time    `json:"oldestAcceptedAt,omitzero" doc:"When the oldest of those was accepted. Absent: none waits."`
	Shared           bool         `json:"shared,omitempty" doc:"True: workflows of accounts that the caller does not see name it, too, so what waits is not told: waiting is 0 everywhere. Absent: false."`
	Groups           []QueueGroup `json:"groups" nullable:"false" doc:"The groups of runners, by name."`
}

// QueueGroup is a group of runners, which share a queue's executions.
type QueueGroup struct {
	Group   string `json:"group" doc:"Its name; of a consumer that is not the runner kit's, the consumer's." example:"main"`
	Members int    `json:"members" doc:"Runners that are there. One that was killed is missed after 12 s at the latest. Of runners that do not say that they are there, how many requests for work are waiting."`
	Waiting uint64 `json:"waiting" doc:"Starts that no member was given. Without members: and those that were given to one, and not finished."`
	// MaxInFlight is the maximum number of executions in flight. nil means that there is no limit.
	MaxInFlight *int64    `json:"maxInFlight,omitempty" doc:"How many of its executions are out at all its members together. Absent: as many as they ask for."`
	LastSeenAt  time.Time `json:"lastSeenAt,omitzero" doc:"When a member was there last. Absent: not known."`
	Held        []HeldKey `json:"held,omitempty" doc:"The order keys that are held up: an execution of the key is out, and others wait behind it."`
}

// HeldKey is an order key that is held up in a group, and the execution that holds it up.
type HeldKey struct {
	OrderKey string `json:"orderKey" doc:"The order key of the execution." example:"4711"`
	// WorkflowID is the workflow of the execution.
	WorkflowID  string    `json:"workflowId" example:"orders"`
	ExecutionID string    `json:"executionId" format:"uuid" doc:"The execution that a runner was given, and that has not ended."`
	Since       time.Time `json:"since" doc:"When its handler began; if that was not reported, when it was accepted."`
	Waiting     uint64    `json:"waiting" doc:"How many executions wait behind it: of its key, and of other keys in its lane."`
}

// QueuePause is the pause of a queue.
type QueuePause struct {
	// Since is the time at which the queue was paused.
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero" doc:"When it ends by itself. Absent: when the queue is resumed."`
}

// PauseQueue specifies for how long a queue is paused.
type PauseQueue struct {
	Until time.Time `json:"until,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"When the pause ends by itself. Absent: when the queue is resumed."`
}

// PutQueueGroup holds the settings of a group of runners.
type PutQueueGroup struct {
	MaxInFlight *int64 `json:"maxInFlight" nullable:"true" minimum:"1" maximum:"1000000" doc:"How many of its executions are out at all its members together. null: as many as they ask for." example:"1"`
}

// QueueStream is the own stream of a queue.
type QueueStream struct {
	Phase         string   `json:"phase" enum:"movingIn,closedIn,own,movingOut,closedOut,draining" doc:"own: its starts are in it. draining: they are in the shared stream again, and what waits in this one is run from it; it goes when all of it has expired. Others: the queue is moving; while it is closed, for seconds at most, requests are answered 503."`
	MaxBytes      int64    `json:"maxBytes,omitempty" doc:"At this size it refuses what is new. Absent: no limit."`
	MaxAgeSeconds int64    `json:"maxAgeSeconds,omitempty" doc:"How long it keeps messages. Absent: as long as the shared stream."`
	Replicas      int64    `json:"replicas,omitempty" doc:"How many servers hold it. Absent: as many as the shared stream."`
	PlacementTags []string `json:"placementTags,omitempty" nullable:"false" doc:"The tags of the servers that hold it. Absent: any server."`
}

// PutQueueStream holds the settings of a queue's own stream.
type PutQueueStream struct {
	MaxBytes      int64    `json:"maxBytes,omitempty" minimum:"0" doc:"At this size it refuses what is new. Absent: no limit."`
	MaxAgeSeconds int64    `json:"maxAgeSeconds,omitempty" minimum:"0" doc:"How long it keeps messages: at least as long as delivery IDs are remembered. Absent: as long as the shared stream. A shorter age deletes older messages at once."`
	Replicas      int64    `json:"replicas,omitempty" minimum:"0" doc:"How many servers hold it: 1, 3 or 5. Absent: as many as the shared stream."`
	PlacementTags []string `json:"placementTags,omitempty" nullable:"false" maxItems:"20" doc:"The tags of the servers that hold it. Absent: any server."`
}
