// Package changes tells those who watch that execution records changed, whichever
// executor recorded them. It promises nothing: what must not be missed is in the
// store.
package changes

import (
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

const subject = "hookstart.executions.changed"

// maxIDs keeps a message well below the server's limit.
const maxIDs = 2000

// watcherBuffer is how many changes a watcher may be behind before it is cut off.
const watcherBuffer = 64

// Changes spreads the IDs of changed records. It is safe for concurrent use.
type Changes struct {
	nc  *nats.Conn
	sub *nats.Subscription

	mu       sync.Mutex
	watchers map[chan []string]struct{}
}

// New listens for changes on nc.
func New(nc *nats.Conn) (*Changes, error) {
	c := &Changes{nc: nc, watchers: map[chan []string]struct{}{}}
	var err error
	if c.sub, err = nc.Subscribe(subject, c.hear); err != nil {
		return nil, fmt.Errorf("listen for changes: %w", err)
	}
	return c, nil
}

// Stop ends listening, and every watch.
func (c *Changes) Stop() {
	_ = c.sub.Unsubscribe()
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.watchers {
		delete(c.watchers, w)
		close(w)
	}
}

// Tell says that records changed.
func (c *Changes) Tell(ids []string) error {
	for len(ids) > 0 {
		n := min(len(ids), maxIDs)
		data, err := proto.Marshal(&hookstartv1.ExecutionsChanged{ExecutionIds: ids[:n]})
		if err == nil {
			err = c.nc.Publish(subject, data)
		}
		if err != nil {
			return fmt.Errorf("tell of changes: %w", err)
		}
		ids = ids[n:]
	}
	return nil
}

// Watch returns a channel of IDs of changed records. It is closed when the watcher is
// too slow, or when Changes stops. cancel must be called.
func (c *Changes) Watch() (changed <-chan []string, cancel func()) {
	w := make(chan []string, watcherBuffer)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[w] = struct{}{}
	return w, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, w)
	}
}

func (c *Changes) hear(msg *nats.Msg) {
	var changed hookstartv1.ExecutionsChanged
	if proto.Unmarshal(msg.Data, &changed) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.watchers {
		select {
		case w <- changed.GetExecutionIds():
		default:
			delete(c.watchers, w)
			close(w)
		}
	}
}
