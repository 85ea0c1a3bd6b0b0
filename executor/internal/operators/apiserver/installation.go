package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

// routeInstallation registers the calls that concern the whole installation, such as those for its
// queues and its audit log.
func (s *server) routeInstallation(to huma.API) {
	register(to, operationSpec{
		method: http.MethodGet, path: "/public-url", id: "check-public-url", tag: tagInstallation,
		summary: "Check the public URL",
		description: "The executor sends a signed request there, which starts nothing and uses " +
			"up nobody's rate limit, and which only an ingress of this installation can answer. " +
			"It follows no redirect.",
	}, func(ctx context.Context, caller operate.Caller, _ *struct{}) (api.PublicURL, error) {
		return s.Operate.CheckPublicURL(ctx, caller)
	})
	register(to, operationSpec{
		method:      http.MethodGet,
		path:        "/members",
		id:          "list-members",
		tag:         tagInstallation,
		summary:     "List the executors and ingresses that run",
		description: "With their versions, and with the keys that they can open secrets with.",
	}, func(ctx context.Context, caller operate.Caller, _ *struct{}) (api.Members, error) {
		return s.Operate.Members(ctx, caller)
	})
	register(to, operationSpec{
		method:  http.MethodGet,
		path:    "/size",
		id:      "get-size",
		tag:     tagInstallation,
		summary: "Get the size of the installation",
		description: "The size of the database, how many workflows there are, and the requests " +
			"of each hour of the last 7 days. `hookstart admin size` adds what NATS holds, and " +
			"says how far each limit is.",
	}, func(ctx context.Context, caller operate.Caller, _ *struct{}) (api.Size, error) {
		return s.Operate.Size(ctx, caller)
	})
	register(to, operationSpec{
		method: http.MethodGet, path: "/queues", id: "list-queues", tag: tagInstallation,
		summary: "List the queues",
		description: "What waits in each queue that a workflow names, and which groups of " +
			"runners take it. By name. Callers who see all accounts also get queues that no " +
			"workflow names, but that are paused, or have a stream or a limit of their own. " +
			"Accounts may share a queue: what waits is counted of all of them.",
	}, func(
		ctx context.Context, caller operate.Caller, in *ListInput,
	) (api.List[api.Queue], error) {
		return s.Operate.Queues(ctx, caller, in.AccountID, in.page())
	})
	s.routeQueues(to)
	register(to, operationSpec{
		method:  http.MethodGet,
		path:    "/audit",
		id:      "list-audit",
		tag:     tagInstallation,
		summary: "List who changed what",
		description: "The newest first. Each change of accounts, workflows, tokens, senders and " +
			"keys has exactly one entry, and each sign-in to the console. What was confirmed " +
			"before the call is in it. All filters must match.",
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		Paging
		Actor      string    `query:"actor" doc:"Selects the entries whose actor has this ID, name or kind."`
		AccountID  string    `query:"accountId" doc:"Selects the entries about this account."`
		WorkflowID string    `query:"workflowId" doc:"Selects the entries about this workflow."`
		Since      time.Time `query:"since" doc:"Selects the entries of this time or later."`
		Until      time.Time `query:"until" doc:"Selects the entries before this time."`
	},
	) (api.List[api.AuditEntry], error) {
		return s.Operate.AuditEntries(ctx, caller, operate.AuditFilter{
			Actor:      in.Actor,
			AccountID:  in.AccountID,
			WorkflowID: in.WorkflowID,
			Since:      in.Since,
			Until:      in.Until,
		}, in.page())
	})
}

// QueueNameParam holds the path parameter with a queue's name.
type QueueNameParam struct {
	Queue string `path:"queue" pattern:"^[A-Za-z0-9_-]{1,64}$" example:"default"`
}

// routeQueues registers the calls that change queues.
func (s *server) routeQueues(to huma.API) {
	const sharing = "A key for one account may do so with a queue that its workflows alone name."
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    "/queues/{queue}/pause",
		id:      "pause-queue",
		tag:     tagInstallation,
		summary: "Pause a queue",
		description: "From the answer on, no group of the queue is handed anything new, a group " +
			"that is made later neither: executions are accepted, and wait. What runs goes on. " +
			"Without `until`, or a body, it holds until the queue is resumed. " +
			sharing,
		problemCodes: []string{api.CodeNotFound, api.CodeBodyTooLarge, api.CodeNotConfirmed},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		QueueNameParam
		Body *api.PauseQueue
	},
	) (api.Queue, error) {
		var until time.Time
		if in.Body != nil {
			until = in.Body.Until
		}
		return s.Operate.PauseQueue(ctx, caller, in.Queue, until)
	})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    "/queues/{queue}/resume",
		id:      "resume-queue",
		tag:     tagInstallation,
		summary: "Resume a queue",
		description: "Its groups get what waits, the oldest first. One that is not paused stays " +
			"as it is. " + sharing,
		problemCodes: []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, func(ctx context.Context, caller operate.Caller, in *QueueNameParam) (api.Queue, error) {
		return s.Operate.ResumeQueue(ctx, caller, in.Queue)
	})
	s.routeQueueStreams(to)
	register(to, operationSpec{
		method:  http.MethodPut,
		path:    "/queues/{queue}/groups/{group}",
		id:      "put-queue-group",
		tag:     tagInstallation,
		summary: "Limit a group of runners",
		description: "How many of its executions are out at all its members together. It holds " +
			"for a group that is made later, too. With fewer than are out now, those go on, and " +
			"no further one is handed out until enough have ended. " + sharing,
		problemCodes: []string{api.CodeNotFound, api.CodeBodyTooLarge, api.CodeNotConfirmed},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		QueueNameParam
		Group string `path:"group" pattern:"^[A-Za-z0-9_-]{1,64}$" example:"main"`
		Body  api.PutQueueGroup
	},
	) (api.QueueGroup, error) {
		return s.Operate.SetQueueGroup(ctx, caller, in.Queue, in.Group, in.Body.MaxInFlight)
	})
}

// routeQueueStreams registers the calls that move a queue to its own stream and back to the shared
// stream.
func (s *server) routeQueueStreams(to huma.API) {
	register(to, operationSpec{
		method:  http.MethodPut,
		path:    "/queues/{queue}/stream",
		id:      "put-queue-stream",
		tag:     tagInstallation,
		summary: "Give a queue a stream of its own",
		description: "Its starts, rejections and reports are stored in streams of their own from " +
			"the answer on. Nothing acknowledged is lost, nothing runs twice, and repeats of " +
			"deliveries from before are recognised; for seconds at most, requests are answered " +
			"503. What waits in the shared stream is run from there. Called again, it changes " +
			"the settings. It answers when the move is complete.",
		problemCodes: []string{
			api.CodeNotFound, api.CodeBodyTooLarge, api.CodeNotConfirmed, api.CodeIngressTooOld,
			api.CodeStreamFull, api.CodeQueueMoves,
		},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		QueueNameParam
		Body api.PutQueueStream
	},
	) (api.Queue, error) {
		return s.Operate.SetQueueStream(ctx, caller, in.Queue, in.Body)
	})
	registerNoContent(to, operationSpec{
		method:  http.MethodDelete,
		path:    "/queues/{queue}/stream",
		id:      "delete-queue-stream",
		tag:     tagInstallation,
		summary: "Move a queue back to the shared stream",
		description: "The opposite of giving it a stream of its own, with the same promises. " +
			"What waits in its own stream is run from there; the stream is deleted when all that " +
			"it holds has expired. A queue that has none stays as it is.",
		problemCodes: []string{
			api.CodeNotFound, api.CodeNotConfirmed, api.CodeStreamFull, api.CodeQueueMoves,
		},
	}, func(ctx context.Context, caller operate.Caller, in *QueueNameParam) error {
		return s.Operate.MoveQueueToSharedStream(ctx, caller, in.Queue)
	})
}
