package cli

import (
	"cmp"

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
a value has no order. Without a flag, the place is shown.

Examples:

  hookstart trigger order demo
  hookstart trigger order demo --set ptr:/order/id
  hookstart trigger order demo --clear`
}

func (v *triggerOrderCmd) Run(s *session) error {
	if v.Set == "" && !v.Clear {
		t, err := v.get(s)
		if err != nil {
			return err
		}
		return s.showOrder(t)
	}
	var place any
	if !v.Clear {
		place = v.Set
	}
	t, err := v.patch(s, "orderKey", place)
	if err != nil {
		return err
	}
	return s.showOrder(t)
}

func (s *session) showOrder(t api.Trigger) error {
	return s.print(func() error { return s.printRows([][]string{{"Order key", orderText(t)}}) })
}

func orderText(t api.Trigger) string { return cmp.Or(t.OrderKey, "none: executions have no order") }
