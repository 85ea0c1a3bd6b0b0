package cli

import (
	"encoding/json"
	"fmt"

	"github.com/hookstart/hookstart/executor/client/api"
)

type triggerAnswerCmd struct {
	nodeArgs
	Wait  int64 `help:"Let it wait so many seconds at most, 1 to 25." placeholder:"SECONDS" xor:"answer"`
	Raw   bool  `help:"With --wait: the output of the run is the answer's body, and can set its status and headers."`
	Clear bool  `help:"Take it away: the answer says that the start is stored." xor:"answer"`
}

func (*triggerAnswerCmd) Help() string {
	return `With --wait, the answer to a request has the outcome of its execution: its status, its
output, and why it failed. An execution that takes longer is answered 202 with its ID,
and goes on. With --raw, the output alone is the body, a run that does not succeed is
answered 502, and an output {"http": {"status": 201, "headers": {}, "body": …}} sets
status and headers.

Examples:

  hookstart trigger answer demo
  hookstart trigger answer demo --wait 10
  hookstart trigger answer demo --wait 10 --raw
  hookstart trigger answer demo --clear`
}

func (v *triggerAnswerCmd) Run(s *session) error {
	if v.Wait == 0 && !v.Clear {
		if v.Raw {
			return &usageError{
				"--raw says how an answer that waits looks",
				"give --wait SECONDS, too; hookstart trigger answer --help has examples",
			}
		}
		t, err := v.getTrigger(s)
		if err != nil {
			return err
		}
		return s.showAnswerSetting(t)
	}
	answer := json.RawMessage("null")
	if !v.Clear {
		var err error
		if answer, err = json.Marshal(api.Answer{WaitSeconds: v.Wait, Raw: v.Raw}); err != nil {
			return err
		}
	}
	t, err := v.patchSetting(s, "answer", answer)
	if err != nil {
		return err
	}
	return s.showAnswerSetting(t)
}

func (s *session) showAnswerSetting(t api.Trigger) error {
	return s.printResponse(func() error {
		return s.printRows([][]string{{"Answer", answerSettingText(t)}})
	})
}

// answerSettingText describes whether and how long the node's responses wait for executions.
func answerSettingText(t api.Trigger) string {
	switch {
	case t.Answer == nil:
		return "at once, when the start is stored"
	case t.Answer.Raw:
		return fmt.Sprintf("waits up to %d s for the end of the execution; its output is the "+
			"answer", t.Answer.WaitSeconds)
	default:
		return fmt.Sprintf("waits up to %d s for the end of the execution", t.Answer.WaitSeconds)
	}
}
