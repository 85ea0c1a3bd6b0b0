package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type triggerCmds struct {
	Show   triggerShowCmd   `cmd:"" help:"Show its webhook URL, tokens and limits." example:"hookstart trigger show demo --show-token"`
	Rotate triggerRotateCmd `cmd:"" help:"Make a new token." example:"hookstart trigger rotate demo --keep-old 1h"`
	Sample triggerSampleCmd `cmd:"" help:"Show the sample payload, or set it."`
	Filter triggerFilterCmd `cmd:"" help:"Show which requests start an execution, or set it."`
	Order  triggerOrderCmd  `cmd:"" help:"Show the place of the order key, or set it: executions with one key run one after the other."`
	Answer triggerAnswerCmd `cmd:"" help:"Show whether the answer waits for the end of the execution, or set it."`
	Send   triggerSendCmd   `cmd:"" help:"Post to its webhook URL, as a sender does."`
	Rerun  triggerRerunCmd  `cmd:"" help:"Start an execution on the sample payload." detail:"An inactive workflow can be tried, too." example:"hookstart trigger rerun demo"`
}

// nodeArgs holds the arguments that identify a trigger node.
type nodeArgs struct {
	Workflow string `arg:"" type:"id" help:"The workflow's ID."`
	Node     string `arg:"" optional:"" type:"node" help:"The trigger node's ID. Default: its only one."`
}

// patchSetting changes one setting of the node. A value that is nil or JSON null removes the
// setting.
func (n *nodeArgs) patchSetting(s *session, setting string, value any) (api.Trigger, error) {
	id, err := n.resolveNodeID(s)
	if err != nil {
		return api.Trigger{}, err
	}
	return s.client.PatchTrigger(s.ctx, n.Workflow, id, apiclient.Patch{setting: value})
}

// resolveNodeID returns the node's ID, which may be omitted if the workflow has only one node.
func (n *nodeArgs) resolveNodeID(s *session) (string, error) {
	if n.Node != "" {
		return n.Node, nil
	}
	w, err := s.client.Workflow(s.ctx, n.Workflow)
	if err != nil {
		return "", err
	}
	if len(w.Triggers) == 1 {
		return w.Triggers[0].NodeID, nil
	}
	var ids []string
	for _, t := range w.Triggers {
		ids = append(ids, t.NodeID)
	}
	return "", &usageError{
		fmt.Sprintf("workflow %s has %d trigger nodes: say which", w.ID, len(ids)),
		"one of " + strings.Join(ids, ", "),
	}
}

func (n *nodeArgs) getTrigger(s *session) (api.Trigger, error) {
	id, err := n.resolveNodeID(s)
	if err != nil {
		return api.Trigger{}, err
	}
	t, err := s.client.Trigger(s.ctx, n.Workflow, id)
	if isNotFound(err) {
		return t, &hintError{err, "hookstart workflow get " + n.Workflow}
	}
	return t, err
}

// tokenDisplay holds the flag --show-token. Without this flag, the output hides tokens. Output with
// -o json always contains them.
type tokenDisplay struct {
	ShowToken bool `help:"Show the tokens. (-o json always has them.)"`
}

type triggerShowCmd struct {
	nodeArgs
	tokenDisplay
}

func (v *triggerShowCmd) Run(s *session) error {
	t, err := v.getTrigger(s)
	if err != nil {
		return err
	}
	return v.showTrigger(s, t)
}

type triggerRotateCmd struct {
	nodeArgs
	KeepOld secondsArg `help:"How long the current tokens stay valid. Default: they end at once." placeholder:"DURATION"`
	tokenDisplay
}

func (v *triggerRotateCmd) Run(s *session) error {
	id, err := v.resolveNodeID(s)
	if err != nil {
		return err
	}
	t, err := s.client.RotateToken(s.ctx, v.Workflow, id,
		time.Duration(v.KeepOld.seconds)*time.Second)
	if err != nil {
		return err
	}
	if v.KeepOld.seconds == 0 {
		s.printNote("The old token has ended: senders need the new URL now. It is shown by " +
			"--show-token, here and with trigger show.")
	}
	return v.showTrigger(s, t)
}

type triggerRerunCmd struct{ nodeArgs }

func (v *triggerRerunCmd) Run(s *session) error {
	id, err := v.resolveNodeID(s)
	if err != nil {
		return err
	}
	started, err := s.client.RerunTrigger(s.ctx, v.Workflow, id)
	return s.printResultLine(withSampleHint(err, v.Workflow, id),
		"%s started on the sample payload",
		started.ExecutionID)
}

// showTrigger prints a node's settings. Unless -o json is set, it prints the tokens only if
// --show-token is set.
func (k tokenDisplay) showTrigger(s *session, t api.Trigger) error {
	return s.printResponse(func() error {
		sample := "none"
		if isNonNullJSON(t.SamplePayload) {
			sample = fmt.Sprintf("%d bytes (trigger sample)", len(t.SamplePayload))
		}
		// The URL is on a separate line so that it can be copied even if it is long.
		url := k.urlText(t)
		if url == "" {
			url = "The URL holds a token, which viewers do not see."
		}
		if err := s.printLine("%s", url); err != nil {
			return err
		}
		if err := s.printRows([][]string{
			{"Node", t.NodeID},
			{"Name", t.Name},
			{"Sample", sample},
			{"Rate limit", rateLimitText(&t.RateLimit)},
			{"Body limit", fmt.Sprintf("%d bytes", t.MaxBodyBytes)},
			{"Sender", senderText(t.Sender)},
			{"Delivery ID", deliveryIDSourcesText(t)},
			{"Filter", filterText(t)},
			{"Order key", orderKeyText(t)},
			{"Answer", answerSettingText(t)},
		}); err != nil {
			return err
		}
		table := [][]string{{"TOKEN", "CREATED", "LAST USED", "ENDS"}}
		for _, token := range t.Tokens {
			used := "never"
			if token.LastUsedAt != nil {
				used = ago(*token.LastUsedAt, s.now())
			}
			table = append(table, []string{
				k.tokenText(token.Token), ago(token.CreatedAt, s.now()), used,
				agoOr(token.ExpiresAt, s.now(), "never"),
			})
		}
		return s.printRows(table)
	})
}

// senderText describes a node's sender and whether its requests are verified.
func senderText(s *api.Sender) string {
	switch {
	case s == nil:
		return "none: the token alone opens the webhook"
	case len(s.Secrets) == 0:
		return s.Preset + ", no secret"
	default:
		return s.Preset + ", requests are verified"
	}
}

func (k tokenDisplay) tokenText(tokenText string) string {
	if tokenText == "" {
		return "(not for viewers)"
	}
	if k.ShowToken {
		return tokenText
	}
	prefix, _, _ := strings.Cut(tokenText, "_")
	return prefix + "_…(hidden; --show-token)"
}

func (k tokenDisplay) urlText(t api.Trigger) string {
	if k.ShowToken || t.Token == "" {
		return t.URL
	}
	return strings.ReplaceAll(t.URL, t.Token, k.tokenText(t.Token))
}

// deliveryIDSourcesText returns a text that lists the first places where the ingress looks for a
// delivery ID in a request. Without a sender, it lists two places: the headers that
// webhook.PriorityDeliveryIDHeaders returns. With a sender, it lists three, because a place that
// the sender defines may come before these headers. If there are more places, the text ends with
// their number, such as "and 3 more".
func deliveryIDSourcesText(t api.Trigger) string {
	places := t.DeliveryIDSources
	first := 2
	if t.Sender != nil {
		first = 3
	}
	said := make([]string, 0, first)
	for _, place := range places[:min(first, len(places))] {
		said = append(said, strings.TrimPrefix(place, "header:"))
	}
	if more := len(places) - len(said); more > 0 {
		return strings.Join(said, ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(said, ", ")
}
