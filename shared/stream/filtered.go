package stream

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
)

// FilteredSubject is the subject of the reports about requests that did not match their nodes'
// filters.
const FilteredSubject = "reports.filtered"

// FilteredCount counts the requests that did not match one trigger node's filter since the last
// report.
type FilteredCount struct {
	WorkflowID, NodeID string

	Count int64             // number of requests; Last holds the most recent ones
	Last  []FilteredRequest // newest first, at most MaxFilteredRequests
}

// FilteredRequest is the stored part of a request that did not match its node's filter.
type FilteredRequest struct {
	At         time.Time // when the request arrived
	DeliveryID string    // at most execution.MaxDeliveryIDBytes bytes; "" if it has none
	// Place names the part of the request that did not meet the filter's condition, for example a
	// path in the body. It is at most MaxFilteredPlaceBytes bytes long.
	Place string
}

const (
	// MaxFilteredRequests is the maximum number of requests that a report describes for one node.
	MaxFilteredRequests = 20
	// MaxFilteredPlaceBytes is the maximum number of bytes of FilteredRequest.Place.
	MaxFilteredPlaceBytes = 500
)

// FilteredMessage encodes a report on filtered requests made at the given time. Resending the
// message is safe: its ID ensures that the report is applied only once. nodes should have at most
// 1,000 elements with 700 requests in total, which fit into NATS's default max_payload of 1 MB.
func FilteredMessage(reportID string, at time.Time, nodes []FilteredCount) (*nats.Msg, error) {
	report := &hookstartv1.FilterReport{ReportId: reportID, At: timestamppb.New(at)}
	for _, n := range nodes {
		node := &hookstartv1.FilteredNode{
			WorkflowId: n.WorkflowID,
			NodeId:     n.NodeID,
			Count:      n.Count,
		}
		for _, r := range n.Last {
			node.Last = append(node.Last, &hookstartv1.FilteredRequest{
				At:         timestamppb.New(r.At),
				DeliveryId: truncate(r.DeliveryID, execution.MaxDeliveryIDBytes),
				Place:      truncate(r.Place, MaxFilteredPlaceBytes),
			})
		}
		report.Nodes = append(report.Nodes, node)
	}
	return reportMessage(FilteredSubject, reportID, report)
}

// truncate returns the beginning of a string as valid UTF-8, at most length bytes long.
func truncate(text string, length int) string {
	return strings.ToValidUTF8(text[:min(len(text), length)], "")
}

// DecodeFiltered decodes the data of a report on filtered requests, and skips entries that are not
// valid. Its errors wrap ErrUnreadable.
func DecodeFiltered(data []byte) (reportID string, at time.Time, nodes []FilteredCount, err error) {
	var report hookstartv1.FilterReport
	if err := proto.Unmarshal(data, &report); err != nil {
		return "", time.Time{}, nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if report.GetReportId() == "" {
		return "", time.Time{}, nil, fmt.Errorf("%w: the report has no ID", ErrUnreadable)
	}
	for _, n := range report.GetNodes() {
		if !execution.ValidName(n.GetWorkflowId()) || !execution.ValidName(n.GetNodeId()) ||
			n.GetCount() <= 0 {
			continue
		}
		node := FilteredCount{
			WorkflowID: n.GetWorkflowId(),
			NodeID:     n.GetNodeId(),
			Count:      n.GetCount(),
		}
		for _, r := range n.GetLast()[:min(len(n.GetLast()), MaxFilteredRequests)] {
			node.Last = append(node.Last, FilteredRequest{
				At:         timeFromWire(r.GetAt()),
				DeliveryID: truncate(r.GetDeliveryId(), execution.MaxDeliveryIDBytes),
				Place:      truncate(r.GetPlace(), MaxFilteredPlaceBytes),
			})
		}
		nodes = append(nodes, node)
	}
	return report.GetReportId(), timeFromWire(report.GetAt()), nodes, nil
}
