package cli

import (
	"encoding/json"
	"fmt"

	"github.com/hookstart/hookstart/executor/client/api"
)

type triggerFilterCmd struct {
	nodeArgs
	File  string `help:"Set it to the JSON in this file. -: stdin." placeholder:"PATH" xor:"filter"`
	Set   string `help:"Set it to this." placeholder:"JSON" xor:"filter"`
	Clear bool   `help:"Take it away: every request starts an execution." xor:"filter"`
}

func (*triggerFilterCmd) Help() string {
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

func (v *triggerFilterCmd) Run(s *session) error {
	if v.File == "" && v.Set == "" && !v.Clear {
		t, err := v.getTrigger(s)
		if err != nil {
			return err
		}
		return s.showFilter(t)
	}
	text, name := []byte(v.Set), "--set"
	if v.File != "" {
		var err error
		if text, err = s.readInputFile("--file", v.File); err != nil {
			return err
		}
		name = "--file"
	}
	filter := json.RawMessage("null")
	if !v.Clear {
		filter = text
		if err := validateJSON(name, text, `like '{"ptr:/action": "opened"}'`); err != nil {
			return err
		}
	}
	t, err := v.patchSetting(s, "filter", filter)
	if err != nil {
		return err
	}
	return s.showFilter(t)
}

// showFilter prints the node's filter and the most recent requests that did not match it.
func (s *session) showFilter(t api.Trigger) error {
	return s.printResponse(func() error {
		if err := s.printRows([][]string{
			{"Filter", filterText(t)},
			{"Filtered", filteredCountText(t)},
		}); err != nil || t.Filtered == nil {
			return err
		}
		table := [][]string{{"AT", "DELIVERY ID", "PLACE"}}
		for _, r := range t.Filtered.Last {
			table = append(table, []string{ago(r.At, s.now()), r.DeliveryID, r.Place})
		}
		return s.printRows(table)
	})
}

func filterText(t api.Trigger) string {
	if !isNonNullJSON(t.Filter) {
		return "none: every request starts an execution"
	}
	return string(t.Filter)
}

func filteredCountText(t api.Trigger) string {
	if t.Filtered == nil {
		return "0"
	}
	return fmt.Sprint(t.Filtered.Count)
}
