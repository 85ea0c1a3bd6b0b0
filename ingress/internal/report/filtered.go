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

// filteredInterval is the interval at which the counts of filtered requests are sent.
const filteredInterval = time.Second

// The bounds of the memory, which keep a report below the size of a NATS message.
const (
	// Requests of further nodes are not counted until a report has been sent.
	maxFilteredNodes    = 1000
	maxFilteredRequests = 700 // further ones are only counted
)

// Filtered counts the requests that did not meet the filters of their nodes. It is safe for
// concurrent use.
type Filtered struct {
	*sender

	mu       sync.Mutex
	nodes    map[nodeOf]*stream.Filtered
	requests int // that are kept in nodes
}

type nodeOf struct{ workflowID, nodeID string }

// NewFiltered returns a Filtered, which sends its counts until Stop.
func NewFiltered(js jetstream.JetStream, log logrus.FieldLogger) *Filtered {
	f := &Filtered{nodes: map[nodeOf]*stream.Filtered{}}
	f.sender = startSender(js, log, "filtered requests", filteredInterval, f.message)
	return f
}

// Count counts one request to an existing node.
func (f *Filtered) Count(workflowID, nodeID string, request stream.FilteredRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := nodeOf{workflowID, nodeID}
	node := f.nodes[key]
	if node == nil {
		if len(f.nodes) >= maxFilteredNodes {
			return
		}
		node = &stream.Filtered{WorkflowID: workflowID, NodeID: nodeID}
		f.nodes[key] = node
	}
	node.Count++
	switch {
	case len(node.Last) == stream.MaxFilteredRequests: // the oldest one goes
		node.Last = append(node.Last[:0], node.Last[1:]...)
	case f.requests >= maxFilteredRequests:
		return
	default:
		f.requests++
	}
	node.Last = append(node.Last, request) // the oldest first, until it is sent
}

func (f *Filtered) message() (*nats.Msg, error) {
	f.mu.Lock()
	nodes := f.nodes
	if len(nodes) == 0 {
		f.mu.Unlock()
		return nil, nil //nolint:nilnil // nothing to say is no error
	}
	f.nodes, f.requests = map[nodeOf]*stream.Filtered{}, 0
	f.mu.Unlock()
	all := make([]stream.Filtered, 0, len(nodes))
	for _, node := range nodes {
		slices.Reverse(node.Last)
		all = append(all, *node)
	}
	return stream.FilteredMessage(uuid.NewString(), time.Now(), all)
}
