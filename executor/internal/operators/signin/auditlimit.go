package signin

import (
	"sync"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

// maxAuditedSignInsPerMinute is the maximum number of sign-ins that are recorded in the audit log
// for each caller in a minute. The limit exists because a script may sign in constantly with a key,
// and the audit log keeps entries for a long time.
const maxAuditedSignInsPerMinute = 30

// signInAuditLimiter limits how many sign-ins of each caller are recorded in the audit log per
// minute. It is safe for concurrent use.
type signInAuditLimiter struct {
	now func() time.Time

	mu           sync.Mutex
	minute       time.Time
	signInCounts map[operate.Identity]int
}

func newSignInAuditLimiter() *signInAuditLimiter { return &signInAuditLimiter{now: time.Now} }

// allow counts a caller's sign-in, and reports whether it should be recorded.
func (n *signInAuditLimiter) allow(caller operate.Caller) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if minute := n.now().Truncate(time.Minute); !minute.Equal(n.minute) {
		n.minute, n.signInCounts = minute, map[operate.Identity]int{}
	}
	identity := caller.Identity()
	n.signInCounts[identity]++
	return n.signInCounts[identity] <= maxAuditedSignInsPerMinute
}
