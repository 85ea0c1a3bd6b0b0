package cli

import (
	"cmp"
	"fmt"

	"github.com/hookstart/hookstart/executor/client/api"
)

type triggerOrderCmd struct {
	nodeArgs
	Set   string `help:"Set it to this place." placeholder:"PLACE" xor:"order"`
	Clear bool   `help:"Take it away: executions have no order." xor:"order"`
}

func (*triggerOrderCmd) Help() string {
	return `An order key is a place of a request: header:Name, ptr:/json/pointer, form:field or
query:name. Executions of the workflow with the same value there run one after the
other in each group of runners, in the order in which they were accepted. One without
a value has no order. It is shown how many of the last requests have a value there.

Examples:

  hookstart trigger order demo
  hookstart trigger order demo --set ptr:/order/id
  hookstart trigger order demo --clear`
}

func (v *triggerOrderCmd) Run(s *session) error {
	if v.Set == "" && !v.Clear {
		t, err := v.getTrigger(s)
		if err != nil {
			return err
		}
		return v.printOrderKey(s, t)
	}
	var place any
	if !v.Clear {
		place = v.Set
	}
	t, err := v.patchSetting(s, "orderKey", place)
	if err != nil {
		return err
	}
	return v.printOrderKey(s, t)
}

// printOrderKey prints the order key, and how many of the most recent requests contain a value for
// the key. It prints a warning if none of them does.
func (v *triggerOrderCmd) printOrderKey(s *session, t api.Trigger) error {
	if t.OrderKey == "" {
		return s.printResponse(func() error {
			return s.printRows([][]string{{"Order key", orderKeyText(t)}})
		})
	}
	response := s.lastResponseBody
	trial, err := s.client.TryOrderKey(s.ctx, v.Workflow, t.NodeID, t.OrderKey)
	s.lastResponseBody = response // -o json prints the trigger, not the result of the trial
	if printed := s.printResponse(func() error {
		rows := [][]string{{"Order key", orderKeyText(t)}}
		if err == nil {
			rows = append(rows, []string{"Values", orderKeyTrialText(trial)})
		}
		return s.printRows(rows)
	}); printed != nil {
		return printed
	}
	switch {
	case err != nil:
		s.printNote("It is not known how many of the last requests have a value there: %v", err)
	case trial.Requests > 0 && trial.WithValue == 0:
		s.printNote("Warning: none of the last %d requests has a value at %s. Without one, "+
			"executions "+
			"have no order.", trial.Requests, t.OrderKey)
	}
	return nil
}

// orderKeyTrialText describes how many of the most recent requests contain a value for the order
// key.
func orderKeyTrialText(trial api.OrderKeyTrial) string {
	if trial.Requests == 0 {
		return "not known: no request has come that could be looked at"
	}
	return fmt.Sprintf("in %d of the last %d requests", trial.WithValue, trial.Requests)
}

func orderKeyText(t api.Trigger) string {
	return cmp.Or(t.OrderKey, "none: executions have no order")
}
