package api

import "time"

// Queue is the state of a queue: the executions that are waiting in it, and the groups of runners
// that consume it.
type Queue struct {
	// Queue is the name of the queue.
	Queue            string       `json:"queue" example:"default"`
	Paused           *QueuePause  `json:"paused,omitempty" doc:"The pause of the queue: runners receive no new executions of it. Absent: the queue is not paused."`
	Stream           string       `json:"stream" doc:"The name of the stream that holds the starts of the queue." example:"EXECUTIONS"`
	OwnStream        *QueueStream `json:"ownStream,omitempty" doc:"The own stream of the queue. Absent: its starts are in the stream that all queues share."`
	Waiting          uint64       `json:"waiting" doc:"The number of starts that no runner has received, in the group that is furthest ahead. Without a group: the number of starts in the stream, which a new group would receive."`
	OldestAcceptedAt time.Time    `json:"oldestAcceptedAt,omitzero" doc:"When the oldest waiting start was accepted. Absent: none waits."`
	Shared           bool         `json:"shared,omitempty" doc:"Whether workflows of accounts that the caller may not see use the queue, too. Then the numbers of waiting executions are hidden: they are all 0. Absent means false."`
	Incomplete       bool         `json:"incomplete,omitempty" doc:"Whether the own stream of the queue did not answer. Then the waiting starts and the groups are those of the shared stream alone. Absent means false."`
	Groups           []QueueGroup `json:"groups" nullable:"false" doc:"The groups of runners, by name."`
}

// QueueGroup is a group of runners that share a queue's executions.
type QueueGroup struct {
	Group   string `json:"group" doc:"The name of the group, or the name of the consumer if it was not created by the runner kit." example:"main"`
	Members int    `json:"members" doc:"The number of running members. A member that was killed is no longer counted after at most 12 seconds. For runners that send no heartbeats, it is the number of waiting requests for work."`
	// MembersUnknown is true if Members is 0 only because the executor has not listened to
	// heartbeats for long enough yet. The group may then have members.
	MembersUnknown bool   `json:"membersUnknown,omitempty" doc:"Whether the group may have members although none is counted: the executor has started or reconnected, and has not listened to the heartbeats of runners for 12 seconds yet. Absent means false."`
	Waiting        uint64 `json:"waiting" doc:"The number of starts that no member has received. Without members, it includes the starts that a former member received and did not finish."`
	// MaxInFlight is the maximum number of executions that the group's members have received and
	// not finished, in total. nil means no limit.
	MaxInFlight *int64    `json:"maxInFlight,omitempty" doc:"The maximum number of executions that the members of the group have received and not finished, in total. Absent: no limit."`
	LastSeenAt  time.Time `json:"lastSeenAt,omitzero" doc:"When a member was last seen. Absent: not known."`
	Held        []HeldKey `json:"held,omitempty" doc:"The order keys for which executions wait until an earlier execution with the same key has ended."`
}

// HeldKey is an order key whose executions wait, in one group of runners, until an earlier
// execution with the same key has ended. ExecutionID is that earlier execution.
type HeldKey struct {
	OrderKey string `json:"orderKey" doc:"The order key of the execution." example:"4711"`
	// WorkflowID is the ID of the workflow of the execution.
	WorkflowID  string    `json:"workflowId" example:"orders"`
	ExecutionID string    `json:"executionId" format:"uuid" doc:"The ID of the execution that a runner has received and that has not ended."`
	Since       time.Time `json:"since" doc:"When the handler of that execution began; if that was not reported, when the execution was accepted."`
	Waiting     uint64    `json:"waiting" doc:"The number of executions that wait behind it: those with its key, and those with other keys in the same lane."`
}

// QueuePause holds the beginning and the end of a queue's pause.
type QueuePause struct {
	// Since is when the queue was paused.
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero" doc:"When the pause ends by itself. Absent: it lasts until the queue is resumed."`
}

// PauseQueue specifies how long to pause a queue.
type PauseQueue struct {
	Until time.Time `json:"until,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"When the pause ends by itself. Absent: it lasts until the queue is resumed."`
}

// PutQueueGroup holds the settings of a group of runners.
type PutQueueGroup struct {
	MaxInFlight *int64 `json:"maxInFlight" nullable:"true" minimum:"1" maximum:"1000000" doc:"The maximum number of executions that the members of the group have received and not finished, in total. null: no limit." example:"1"`
}

// QueueStream describes a queue's own stream.
type QueueStream struct {
	Phase         string   `json:"phase" enum:"movingIn,closedIn,own,movingOut,closedOut,draining" doc:"own: new starts are stored in this stream. draining: new starts are stored in the shared stream again, runners still receive what waits in this one, and it is deleted when all of its messages have expired. Any other value: the queue is moving. While it moves, requests may be answered 503 for a few seconds."`
	MaxBytes      int64    `json:"maxBytes,omitempty" doc:"The maximum size of the stream in bytes. A full stream refuses new messages. Absent: no limit."`
	MaxAgeSeconds int64    `json:"maxAgeSeconds,omitempty" doc:"For how many seconds the stream keeps messages. Absent: as long as the shared stream does."`
	Replicas      int64    `json:"replicas,omitempty" doc:"The number of NATS servers that store the stream. Absent: as many as store the shared stream."`
	PlacementTags []string `json:"placementTags,omitempty" nullable:"false" doc:"The tags that the NATS servers of the stream must have. Absent: any server."`
}

// PutQueueStream holds the settings of a queue's own stream.
type PutQueueStream struct {
	MaxBytes      int64    `json:"maxBytes,omitempty" minimum:"0" doc:"The maximum size of the stream in bytes. A full stream refuses new messages. Absent: no limit."`
	MaxAgeSeconds int64    `json:"maxAgeSeconds,omitempty" minimum:"0" doc:"For how many seconds the stream keeps messages: at least as long as delivery IDs are remembered. Absent: as long as the shared stream does. If the time is shortened, older messages are deleted at once."`
	Replicas      int64    `json:"replicas,omitempty" minimum:"0" doc:"The number of NATS servers that store the stream: 1, 3 or 5. Absent: as many as store the shared stream."`
	PlacementTags []string `json:"placementTags,omitempty" nullable:"false" maxItems:"20" doc:"The tags that the NATS servers of the stream must have. Absent: any server."`
}
