package operate

import (
	"fmt"
	"sync"

	"github.com/hookstart/hookstart/executor/client/api"
)

// MaxEventStreamsPerCaller is the maximum number of event streams that one caller may have open on
// one executor. Each stream looks up the changes of all accounts, so without a limit one viewer
// could slow down every other caller.
const MaxEventStreamsPerCaller = 500

// openEventStreamCounts counts the open event streams of each caller. The zero value is ready to
// use. It is safe for concurrent use.
type openEventStreamCounts struct {
	mu           sync.Mutex
	openByCaller map[Identity]int
}

// acquire counts one more open stream of a caller, or returns an error if the caller already has
// MaxEventStreamsPerCaller of them. If acquire succeeds, end must be called once, when the stream
// is closed.
func (c *openEventStreamCounts) acquire(caller Caller) (end func(), err error) {
	// Keep the identity for end: the caller's name and role may change while the stream is open.
	identity := caller.Identity()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.openByCaller[identity] >= MaxEventStreamsPerCaller {
		return nil, &Error{
			Code: api.CodeTooManyStreams,
			Detail: fmt.Sprintf("You have %d event streams open at this executor. Close some, or "+
				"let several readers share one.", MaxEventStreamsPerCaller),
		}
	}
	if c.openByCaller == nil {
		c.openByCaller = map[Identity]int{}
	}
	c.openByCaller[identity]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.openByCaller[identity]--; c.openByCaller[identity] == 0 {
			delete(c.openByCaller, identity)
		}
	}, nil
}
