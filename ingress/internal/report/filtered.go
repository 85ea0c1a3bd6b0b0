package report

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/stream"
)

// filteredReportInterval is the interval between reports of filtered requests.
const filteredReportInterval = time.Second

// Bounds on memory use, which also keep a report below the maximum size of a NATS message.
const (
	// maxFilteredNodes is the maximum number of nodes in a report. Once a report has that many
	// nodes, requests to other nodes are not counted until the report has been sent.
	maxFilteredNodes = 1000
	// maxFilteredRequests is the maximum number of requests, of all nodes together, for which a
	// report contains details. Further requests are only counted, unless they replace the details
	// of an older request to the same node.
	maxFilteredRequests = 700
)

// FilteredRequestCounter counts the requests that did not match their node's filter. It is safe for
// concurrent use.
type FilteredRequestCounter struct {
	reporter

	mu       sync.Mutex
	nodes    map[nodeKey]*stream.FilteredCount
	requests int // number of requests kept in nodes
}

type nodeKey struct{ workflowID, nodeID string }

// NewFilteredRequestCounter returns a FilteredRequestCounter. It sends reports only while Run is
// running.
func NewFilteredRequestCounter(
	js jetstream.JetStream, log logrus.FieldLogger,
) *FilteredRequestCounter {
	f := &FilteredRequestCounter{nodes: map[nodeKey]*stream.FilteredCount{}}
	f.reporter = newReporter(js, log, "filtered requests", filteredReportInterval, f.drainToMessage)
	return f
}

// Count counts one request that did not match the filter of a node. The node must exist.
func (f *FilteredRequestCounter) Count(workflowID, nodeID string, request stream.FilteredRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := nodeKey{workflowID, nodeID}
	node := f.nodes[key]
	if node == nil {
		if len(f.nodes) >= maxFilteredNodes {
			return
		}
		node = &stream.FilteredCount{WorkflowID: workflowID, NodeID: nodeID}
		f.nodes[key] = node
	}
	node.Count++
	switch {
	case len(node.Last) == stream.MaxFilteredRequests: // drop the oldest one
		node.Last = append(node.Last[:0], node.Last[1:]...)
	case f.requests >= maxFilteredRequests:
		return
	default:
		f.requests++
	}
	node.Last = append(node.Last, request) // oldest first; drainToMessage reverses the order
}

func (f *FilteredRequestCounter) drainToMessage() (*nats.Msg, error) {
	f.mu.Lock()
	nodes := f.nodes
	if len(nodes) == 0 {
		f.mu.Unlock()
		return nil, nil //nolint:nilnil // nothing to say is no error
	}
	f.nodes, f.requests = map[nodeKey]*stream.FilteredCount{}, 0
	f.mu.Unlock()
	all := make([]stream.FilteredCount, 0, len(nodes))
	for _, node := range nodes {
		slices.Reverse(node.Last)
		all = append(all, *node)
	}
	return stream.FilteredMessage(uuid.NewString(), time.Now(), all)
}
