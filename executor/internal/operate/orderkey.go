package operate

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/filter"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/sender"
)

// orderKey returns the order key of a start at a trigger node: the key that it has already, from
// the execution whose request it repeats, or the value at the node's place of the key. It returns
// "" if the queue has no lanes: the workflow has moved there, and has no order key any more.
func (s *Service) orderKey(at *edit.TriggerInfo, start *execution.Start) (string, error) {
	key := start.OrderKey
	if key == "" && at.OrderKey != "" {
		place, err := filter.ParseKey(at.OrderKey)
		if err != nil {
			return "",
				fmt.Errorf("the order key of trigger node %q of workflow %q: %w", at.NodeID,
					at.Workflow.ID, err)
		}
		key = place.Of(&sender.Request{
			Header: start.Headers,
			Query:  rawQuery(start.Query),
			Body:   start.Payload.Body,
			IsJSON: start.Payload.Kind == execution.JSON,
		})
	}
	if settings, exist := s.config.Directory.Queue(at.Workflow.Queue); !exist ||
		settings.Record.Lanes == 0 {
		return "", nil
	}
	return key, nil
}

// rawQuery returns the query of a request. The values of a start are percent-encoded already.
func rawQuery(query execution.Values) string {
	var pairs []string
	for name, values := range query {
		for _, value := range values {
			pairs = append(pairs, url.QueryEscape(name)+"="+value)
		}
	}
	return strings.Join(pairs, "&")
}
