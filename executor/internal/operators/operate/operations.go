package operate

import "slices"

// Operation is something that operators can do: a method of Service that has a Caller.
type Operation struct {
	Name string // name of the method
	// RouteID is the operationId of the API's route that calls the method and requires MinRole. It
	// is "" if only the console calls the method, or if the route that calls it gets its role from
	// another operation.
	RouteID string
	// MinRole is the lowest role that may call the method.
	MinRole Role
}

// operations is the only place that says which role an operation needs. The methods of Service look
// up their rule by name, and the API's routes by ID. A method that is not in the table rejects
// every caller. Each method itself checks which objects the caller has access to, because that
// depends on the method's arguments.
var operations = []Operation{
	{"Account", "get-account", RoleViewer},
	{"Accounts", "list-accounts", RoleViewer},
	{"CountExecutions", "", RoleViewer},
	{"AllRefusals", "list-all-refusals", RoleViewer},
	{"ChangedExecutions", "", RoleViewer},
	{"CheckPublicURL", "check-public-url", RoleViewer},
	{"DeadLetters", "list-dead-letters", RoleViewer},
	{"EventSubscription", "get-events", RoleViewer},
	{"Execution", "", RoleViewer},
	{"ExecutionDetail", "get-execution", RoleViewer},
	{"Executions", "list-executions", RoleViewer},
	{"Installation", "", RoleViewer},
	{"ProviderOfLastRequest", "", RoleViewer},
	{"Origin", "", RoleViewer},
	{"Plans", "list-plans", RoleViewer},
	{"Queues", "list-queues", RoleViewer},
	{"Quota", "", RoleViewer},
	{"Refusals", "list-refusals", RoleViewer},
	{"RequestCounts", "", RoleViewer},
	{"Sender", "get-sender", RoleViewer},
	{"SenderPresets", "list-senders", RoleViewer},
	{"TriggerNode", "get-trigger", RoleViewer},
	{"CountRequestsWithOrderKey", "try-order-key", RoleViewer},
	{"UnattendedQueues", "", RoleViewer},
	{"Watch", "stream-executions", RoleViewer},
	{"WhoAmI", "get-whoami", RoleViewer},
	{"Workflow", "get-workflow", RoleViewer},
	{"Workflows", "list-workflows", RoleViewer},

	{"Activate", "activate-workflow", RoleEditor},
	{"AddSenderSecret", "add-sender-secret", RoleEditor},
	{"CancelExecution", "cancel-execution", RoleEditor},
	{"CancelExecutions", "cancel-executions", RoleEditor},
	{"Deactivate", "deactivate-workflow", RoleEditor},
	{"DeleteWorkflow", "delete-workflow", RoleEditor},
	{"DismissDeadLetters", "dismiss-dead-letters", RoleEditor},
	{"PatchTrigger", "patch-trigger", RoleEditor},
	{"PatchWorkflow", "patch-workflow", RoleEditor},
	{"PauseQueue", "pause-queue", RoleEditor},
	{"PutSender", "put-sender", RoleEditor},
	{"PutWorkflow", "put-workflow", RoleEditor},
	{"RemoveSender", "delete-sender", RoleEditor},
	{"RemoveSenderSecret", "delete-sender-secret", RoleEditor},
	{"ReplayExecution", "replay-execution", RoleEditor},
	{"ReplayRejected", "replay-rejected", RoleEditor},
	{"RequeueDeadLetters", "requeue-dead-letters", RoleEditor},
	{"RequeueExecution", "requeue-execution", RoleEditor},
	{"RerunExecution", "rerun-execution", RoleEditor},
	{"RerunTrigger", "rerun-trigger", RoleEditor},
	{"ResumeQueue", "resume-queue", RoleEditor},
	{"RotateToken", "rotate-token", RoleEditor},
	{"SendTest", "send-test", RoleEditor},
	{"SetQueueGroup", "put-queue-group", RoleEditor},
	{"SetSamplePayload", "put-sample-payload", RoleEditor},
	{"TryFilter", "", RoleEditor},

	{"AuditEntries", "list-audit", RoleAdmin},
	{"BackUpAudit", "back-up-audit", RoleAdmin},
	{"BackUpRecords", "back-up-records", RoleAdmin},
	{"CreateKey", "create-key", RoleAdmin},
	{"DeleteAccount", "delete-account", RoleAdmin},
	{"MoveQueueToSharedStream", "delete-queue-stream", RoleAdmin},
	{"Key", "", RoleAdmin},
	{"Keys", "list-keys", RoleAdmin},
	{"Members", "list-members", RoleAdmin},
	{"PatchAccount", "patch-account", RoleAdmin},
	{"PreviewPlanChange", "", RoleAdmin},
	{"PutAccount", "put-account", RoleAdmin},
	{"PutEventSubscription", "put-events", RoleAdmin},
	{"RemoveEventSubscription", "delete-events", RoleAdmin},
	{"RestoreRecords", "restore-records", RoleAdmin},
	{"RevokeKey", "revoke-key", RoleAdmin},
	{"SetQueueStream", "put-queue-stream", RoleAdmin},
	{"Size", "get-size", RoleAdmin},
}

// roleByName and roleByRouteID map the names and the IDs of the operations to their roles.
var (
	roleByName    = rolesBy(func(o Operation) string { return o.Name })
	roleByRouteID = rolesBy(func(o Operation) string { return o.RouteID })
)

func rolesBy(key func(Operation) string) map[string]Role {
	found := map[string]Role{}
	for _, o := range operations {
		if key(o) != "" {
			found[key(o)] = o.MinRole
		}
	}
	return found
}

// Operations returns all operations.
func Operations() []Operation { return slices.Clone(operations) }

// RoleOfOperation returns the lowest role that may call the method of Service with the given name.
// Its second result is false if no operation has that name.
func RoleOfOperation(name string) (Role, bool) {
	least, ok := roleByName[name]
	return least, ok
}

// RoleOfRoute returns the lowest role that may call the API's route with the given operationId. Its
// second result is false if no operation has that ID.
func RoleOfRoute(id string) (Role, bool) {
	least, ok := roleByRouteID[id]
	return least, ok
}
