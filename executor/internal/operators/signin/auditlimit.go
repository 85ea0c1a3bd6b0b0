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
func (l *signInAuditLimiter) allow(caller operate.Caller) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if minute := l.now().Truncate(time.Minute); !minute.Equal(l.minute) {
		l.minute, l.signInCounts = minute, map[operate.Identity]int{}
	}
	identity := caller.Identity()
	l.signInCounts[identity]++
	return l.signInCounts[identity] <= maxAuditedSignInsPerMinute
}
