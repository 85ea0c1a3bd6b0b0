package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/store"
)

func (s *server) routeRefusals(to huma.API) {
	register(s, to, call{
		method: http.MethodGet, path: "/workflows/{id}/refusals", id: "list-refusals", tag: tagWorkflows,
		summary: "Count the refused requests",
		description: "By code, the last refused first. Ingresses count, and report once a second; what they keep " +
			"of a request is in `last`. Counts are kept for a week.",
		codes: []string{api.CodeNotFound},
	}, s.listRefusals)
	register(s, to, call{
		method: http.MethodGet, path: "/refusals", id: "list-all-refusals", tag: tagWorkflows,
		summary: "Count the refused requests of all workflows",
		description: "By workflow and code, the last refused first. Requests to workflows that do not exist are counted by code " +
			"alone; of one that was deleted the counts stay for a week.",
	}, s.listAllRefusals)
}

const (
	refusalsList    = "refusals"
	allRefusalsList = "all-refusals"
)

// refusalsSpan is how far back refusals are counted unless somebody says since when.
const refusalsSpan = 24 * time.Hour

// RefusedSince says how far back refusals are counted.
type RefusedSince struct {
	Since time.Time `query:"since" doc:"Refused in that minute or later. Absent: in the last 24 hours."`
}

func (in RefusedSince) since() time.Time {
	if in.Since.IsZero() {
		return time.Now().Add(-refusalsSpan)
	}
	return in.Since
}

func (s *server) listRefusals(ctx context.Context, in *struct {
	WorkflowID
	Paging
	RefusedSince
},
) (*listOutput[api.Refusal], error) {
	if _, err := s.getWorkflow(ctx, &in.WorkflowID); err != nil {
		return nil, err
	}
	after, err := in.after(refusalsList)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	sums, err := s.Store.Refusals(ctx, in.ID, in.since())
	if err != nil {
		return nil, s.DatabaseError(ctx, err)
	}
	// There are no more than codes.
	sums = sums[slices.IndexFunc(sums, func(sum store.RefusalSum) bool { return sum.Code == after })+1:]
	return page(refusalsList, sums, in.Limit, refusalOnWire, func(sum store.RefusalSum) string { return sum.Code }), nil
}

func (s *server) listAllRefusals(ctx context.Context, in *struct {
	Paging
	RefusedSince
},
) (*listOutput[api.WorkflowRefusal], error) {
	after, err := refusalPosition(in.Paging)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	sums, err := s.Store.AllRefusals(ctx, in.since(), after, in.Limit+1)
	if err != nil {
		return nil, s.DatabaseError(ctx, err)
	}
	return page(allRefusalsList, sums, in.Limit, func(sum store.WorkflowRefusalSum) api.WorkflowRefusal {
		return api.WorkflowRefusal{WorkflowID: sum.WorkflowID, Refusal: refusalOnWire(sum.RefusalSum)}
	}, refusalPositionText), nil
}

// refusalPositionText is where a page of all refusals ends: stored times are whole
// microseconds, and neither IDs nor codes have spaces.
func refusalPositionText(sum store.WorkflowRefusalSum) string {
	return strconv.FormatInt(sum.Last.At.UnixMicro(), 10) + " " + sum.WorkflowID + " " + sum.Code
}

func refusalPosition(in Paging) (store.RefusalPosition, error) {
	text, err := in.after(allRefusalsList)
	if err != nil || text == "" {
		return store.RefusalPosition{}, err
	}
	parts := strings.Split(text, " ")
	if len(parts) != 3 {
		return store.RefusalPosition{}, badCursor()
	}
	at, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return store.RefusalPosition{}, badCursor()
	}
	return store.RefusalPosition{LastAt: time.UnixMicro(at).UTC(), WorkflowID: parts[1], Code: parts[2]}, nil
}

func refusalOnWire(sum store.RefusalSum) api.Refusal {
	wire := api.Refusal{Code: sum.Code, Count: sum.Count, Last: api.RefusedRequest{At: sum.Last.At, UserAgent: sum.Last.UserAgent}}
	if sum.Last.BodyBytes >= 0 {
		wire.Last.BodyBytes = &sum.Last.BodyBytes
	}
	return wire
}
