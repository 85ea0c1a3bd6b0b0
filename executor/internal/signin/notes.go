package signin

import (
	"sync"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operate"
)

// notedSignIns is the maximum number of sign-ins of one caller that are noted in a minute: a key
// can sign in often, and notes are kept for long.
const notedSignIns = 30

// notes counts the sign-ins that were noted in this minute. It is safe for concurrent use.
type notes struct {
	now func() time.Time

	mu     sync.Mutex
	minute time.Time
	noted  map[operate.Identity]int
}

func newNotes() *notes { return &notes{now: time.Now} }

// take reports whether another sign-in of a caller is noted, and counts it.
func (n *notes) take(caller operate.Caller) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if minute := n.now().Truncate(time.Minute); !minute.Equal(n.minute) {
		n.minute, n.noted = minute, map[operate.Identity]int{}
	}
	identity := caller.Identity()
	n.noted[identity]++
	return n.noted[identity] <= notedSignIns
}
