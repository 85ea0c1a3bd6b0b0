package cli

import (
	"fmt"

	"github.com/hookstart/hookstart/executor/api"
)

type triggerFilter struct {
	node
	File  string `help:"Set it to the JSON in this file. -: stdin." placeholder:"PATH" xor:"filter"`
	Set   string `help:"Set it to this." placeholder:"JSON" xor:"filter"`
	Clear bool   `help:"Take it away: every request starts an execution." xor:"filter"`
}

func (*triggerFilter) Help() string {
	return `A filter is an object of places and conditions, which must all hold. A place is
header:Name, ptr:/json/pointer, form:field or query:name. A condition is a value, a
list of values, or an object of $not, $exists, $prefix, $gt, $gte, $lt and $lte. A
request that does not meet it is answered 200 and starts nothing; without a flag, the
last ones are shown.

Examples:

  hookstart trigger filter demo
  hookstart trigger filter demo --set '{"ptr:/action": ["opened", "reopened"]}'
  hookstart trigger filter demo --clear`
}

func (v *triggerFilter) Run(s *session) error {
	if v.File == "" && v.Set == "" && !v.Clear {
		t, err := v.get(s)
		if err != nil {
			return err
		}
		return s.showFilter(t)
	}
	filter, name := []byte(v.Set), "--set"
	switch {
	case v.Clear:
		filter = nil
	case v.File != "":
		var err error
		if filter, err = s.readFile("--file", v.File); err != nil {
			return err
		}
		name = "--file"
	}
	if !v.Clear {
		if err := mustBeJSON(name, filter, `like '{"ptr:/action": "opened"}'`); err != nil {
			return err
		}
	}
	id, err := v.id(s)
	if err != nil {
		return err
	}
	if err := s.putFilter(v.Workflow, id, filter); err != nil {
		return err
	}
	t, err := s.client.Trigger(s.ctx, v.Workflow, id)
	if err != nil {
		return err
	}
	return s.showFilter(t)
}

// putFilter replaces the filter of one node of a workflow, which stays as it is else.
func (s *session) putFilter(workflowID, nodeID string, filter []byte) error {
	have, err := s.client.Workflow(s.ctx, workflowID)
	if err != nil {
		return err
	}
	put := api.PutWorkflow{AccountID: have.AccountID, Name: have.Name, Queue: have.Queue, RateLimit: have.RateLimit}
	for _, t := range have.Triggers {
		trigger := api.PutTrigger{NodeID: t.NodeID, Name: t.Name, Filter: t.Filter}
		if t.NodeID == nodeID {
			trigger.Filter = filter
		}
		put.Triggers = append(put.Triggers, trigger)
	}
	_, err = s.client.PutWorkflow(s.ctx, workflowID, put)
	return err
}

// showFilter prints the filter, and the last requests that did not meet it.
func (s *session) showFilter(t api.Trigger) error {
	return s.print(func() error {
		if err := s.rows([][]string{{"Filter", filterOf(t)}, {"Filtered", filteredCount(t)}}); err != nil || t.Filtered == nil {
			return err
		}
		table := [][]string{{"AT", "DELIVERY ID", "PLACE"}}
		for _, r := range t.Filtered.Last {
			table = append(table, []string{ago(r.At, s.now()), r.DeliveryID, r.Place})
		}
		return s.rows(table)
	})
}

func filterOf(t api.Trigger) string {
	if !isSet(t.Filter) {
		return "none: every request starts an execution"
	}
	return string(t.Filter)
}

func filteredCount(t api.Trigger) string {
	if t.Filtered == nil {
		return "0"
	}
	return fmt.Sprint(t.Filtered.Count)
}
