package operate

import (
	"cmp"
	"fmt"

	"github.com/hookstart/hookstart/executor/client/api"
)

// defaultDetails maps error codes to their general texts, which are shown for errors without a
// Detail.
var defaultDetails = map[string]string{
	api.CodePlanLimitExceeded: "The account's plan allows no further active workflow. " +
		"Deactivate another one, or change the plan.",
	api.CodeWebhooksNotInPlan: "The account's plan has no webhook triggers. Change the plan.",
	api.CodeSamplePayloadMissing: "The trigger node has no sample payload to run on. " +
		"Configure one first.",
	api.CodeTooManyTokens: fmt.Sprintf(
		"%d tokens of this trigger node are valid. Wait until one expires, or rotate with "+
			"keepOldForSeconds 0 to end them all.",
		MaxTokensPerNode,
	),
	api.CodeTooManySecrets: fmt.Sprintf(
		"%d secrets of this sender work. Delete one, or add the new one with "+
			"endOthersAfterSeconds 0 to end them all.",
		MaxSecretsPerSender,
	),
	api.CodeLastSecret: "Without it no request could be verified. Add another secret first, " +
		"or remove the sender.",
	api.CodeIngressTooOld: "An ingress that runs is of a version that does not know this " +
		"setting, and would act against it. Upgrade all ingresses, and repeat the call.",
	api.CodeQueueMoves: "The queue is on the way to a stream of its own, or back. Repeat " +
		"the call when it has moved.",
	api.CodeSecretsKeyMissing: "There is no key to seal the secret with. Give the executors " +
		"and ingresses --secrets-key-file: hookstart admin secrets-key makes a key.",
	api.CodeChangedSince: "It has been changed meanwhile. Load it again, and decide anew.",
	api.CodeNotFailed:    "Only an execution that has failed can be requeued.",
	api.CodeInputExpired: "The stream no longer has the original message, so its body " +
		"cannot run again. Ask the sender to send it again, or run the trigger on its sample " +
		"payload.",
	api.CodeAccountNotEmpty: "The account has workflows or keys. Delete or move the " +
		"workflows, and revoke the keys, first.",
	api.CodeNotFinished:  "Only an execution that has ended can be replayed.",
	api.CodeAlreadyEnded: "The execution has ended, so it cannot be canceled.",
	api.CodeBodyNotKept: "The body of this rejected request was not read, or is not what " +
		"its Content-Type says, so nothing can be started on it. Ask the sender to send it " +
		"again.",
	api.CodeRefused: "The database still refuses the contents of the message.",
	api.CodeUndecodable: "A message that cannot be decoded cannot run. It leaves the list " +
		"when it is old enough.",
	api.CodeNotEmpty: "A backup is restored into an installation in which nothing was done " +
		"yet.",
	api.CodeUnavailable: "NATS or the database cannot be used now. If the call was a " +
		"change, it may or may not be stored.",
	api.CodeInternal: "The call failed. The executor's log says why.",
}

// Explanation returns the general text of an error code, or "" if errors with that code always have
// a Detail.
func Explanation(code string) string { return defaultDetails[code] }

// Text returns the error as a sentence for operators: its Detail, or the code's general text.
func (e *Error) Text() string { return cmp.Or(e.Detail, defaultDetails[e.Code]) }
