package operate

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/filter"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/sender"
)

// orderKey returns the order key for a start message at a trigger node. If start.OrderKey is set,
// because a replay copied it from the original execution, orderKey returns that key. Otherwise, it
// reads the key from the request, at the place in the node's order key setting. It returns "" if
// the queue has no lanes, because order keys have no effect there.
func (s *Service) orderKey(at *edit.TriggerInfo, start *execution.Start) (string, error) {
	key := start.OrderKey
	if key == "" && at.OrderKey != "" {
		place, err := filter.ParseOrderKeyPlace(at.OrderKey)
		if err != nil {
			return "",
				fmt.Errorf("the order key of trigger node %q of workflow %q: %w", at.NodeID,
					at.Workflow.ID, err)
		}
		key = place.Key(&sender.Request{
			Header:    start.Headers,
			Query:     rawQuery(start.Query),
			Body:      start.Payload.Body,
			KnownJSON: start.Payload.Kind == execution.BodyJSON,
		})
	}
	if settings, exist := s.config.RegistryIndex.Queue(at.Workflow.Queue); !exist ||
		settings.Record.LaneCount == 0 {
		return "", nil
	}
	return key, nil
}

// CountRequestsWithOrderKey counts how many of the last requests to a trigger node have a value for
// an order key. place says where in a request the order key is, such as ptr:/id or header:X-Id; ""
// means the place in the node's order key setting. The sample payload is not counted.
func (s *Service) CountRequestsWithOrderKey(
	ctx context.Context, caller Caller, workflowID, nodeID, place string,
) (api.OrderKeyTrial, error) {
	return runRead(
		ctx,
		s,
		caller,
		newAccessRule("CountRequestsWithOrderKey", accessToWorkflow(workflowID)),
		func(ctx context.Context) (api.OrderKeyTrial, error) {
			return s.countRequestsWithOrderKey(ctx, workflowID, nodeID, place)
		},
	)
}

func (s *Service) countRequestsWithOrderKey(
	ctx context.Context, workflowID, nodeID, place string,
) (trial api.OrderKeyTrial, err error) {
	node, err := s.config.Editor.Trigger(ctx, workflowID, nodeID)
	if err != nil {
		return trial, err
	}
	trial.OrderKey = cmp.Or(place, node.OrderKey)
	key, err := filter.ParseOrderKeyPlace(trial.OrderKey)
	if err != nil {
		problem := api.FieldError{Field: "orderKey", Problem: err.Error()}
		return trial, &Error{Code: api.CodeInvalid, Fields: []api.FieldError{problem}}
	}
	var tried FilterTrial
	requests, err := s.lastRequests(ctx, node, &tried, maxTriedRequests)
	if err != nil {
		return trial, err
	}
	trial.Expired = tried.Expired
	for i, r := range requests {
		if tried.Requests[i].isSample() {
			continue
		}
		trial.Requests++
		if key.Key(r) != "" {
			trial.WithValue++
		}
	}
	return trial, nil
}

// rawQuery encodes query parameters as a URL query. Their names and values must be percent-encoded
// again, because the ingress stores them decoded.
func rawQuery(query execution.Values) string {
	var pairs []string
	for name, values := range query {
		for _, value := range values {
			pairs = append(pairs, url.QueryEscape(name)+"="+url.QueryEscape(value))
		}
	}
	return strings.Join(pairs, "&")
}
