package operate

import (
	"fmt"
	"sync"

	"github.com/hookstart/hookstart/executor/client/api"
)

// MaxWatchesPerCaller is the maximum number of event streams that one caller may have open on one
// executor. Each stream looks up the changes of all accounts, so without a limit one viewer could
// slow down every other caller.
const MaxWatchesPerCaller = 500

// openWatchCounts counts the open event streams of each caller. The zero value is ready to use. It
// is safe for concurrent use.
type openWatchCounts struct {
	mu           sync.Mutex
	openByCaller map[Identity]int
}

// acquire counts one more open stream of a caller, or returns an error if the caller already has
// MaxWatchesPerCaller of them. If acquire succeeds, end must be called once, when the stream is
// closed.
func (s *openWatchCounts) acquire(caller Caller) (end func(), err error) {
	// Keep the identity for end: the caller's name and role may change while the stream is open.
	identity := caller.Identity()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openByCaller[identity] >= MaxWatchesPerCaller {
		return nil, &Error{
			Code: api.CodeTooManyStreams,
			Detail: fmt.Sprintf("You have %d event streams open at this executor. Close some, or "+
				"let several readers share one.", MaxWatchesPerCaller),
		}
	}
	if s.openByCaller == nil {
		s.openByCaller = map[Identity]int{}
	}
	s.openByCaller[identity]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.openByCaller[identity]--; s.openByCaller[identity] == 0 {
			delete(s.openByCaller, identity)
		}
	}, nil
}
