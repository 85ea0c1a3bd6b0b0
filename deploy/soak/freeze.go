package soak

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/hookstart/hookstart/shared/retry"
)

// Limits for how long an executor is frozen. Both exceed the time after which the messages of the
// frozen executor are redelivered to another executor.
const (
	shortestFreeze = 8 * time.Second
	longestFreeze  = 15 * time.Second
	// These apply to a freeze that is the only fault. The other executors must resume recording
	// within resumeRecordingTimeout. The freeze lasts at least ten more seconds, so that the soak
	// can check that they keep recording.
	resumeRecordingTimeout = 20 * time.Second
	minOnlyFaultFreeze     = resumeRecordingTimeout + 10*time.Second
)

// freezeExecutor suspends an executor with SIGSTOP, calls the function meanwhile, and then resumes
// the executor. If inTransaction is true, it suspends the executor inside a database transaction
// that has written something; otherwise, outside of any transaction. It tries up to 500 times to
// catch the executor in that state.
func (f *faultInjector) freezeExecutor(
	ctx context.Context, s *service, inTransaction bool, meanwhile func() error,
) error {
	defer func() { _ = s.signal(syscall.SIGCONT) }()
	condition := "state LIKE 'idle in transaction%'"
	if inTransaction {
		condition += " AND backend_xid IS NOT NULL" // a transaction that has written something
	}
	for try := range 500 {
		if err := s.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		retry.Sleep(ctx, 20*time.Millisecond) // let its pending requests to PostgreSQL end
		open, err := f.database.Query(ctx,
			"SELECT count(*) FROM pg_stat_activity WHERE application_name = '"+s.name+"' AND "+
				condition)
		if err != nil {
			return err
		}
		if (open != "0") == inTransaction {
			return meanwhile()
		}
		if err := s.signal(syscall.SIGCONT); err != nil {
			return err
		}
		retry.Sleep(ctx, time.Duration(try%10)*time.Millisecond)
	}
	return errors.New("it was never caught like that")
}

// freezeAsOnlyFault freezes an executor inside a transaction while everything else works. It
// records a stall if the other executors do not continue recording although messages are waiting.
func (f *faultInjector) freezeAsOnlyFault(ctx context.Context, s *service,
	lasts time.Duration,
) error {
	return f.freezeExecutor(ctx, s, true, func() error {
		retry.Sleep(ctx, resumeRecordingTimeout)
		before, err := f.recordedExecutionCount(ctx)
		if err != nil {
			return err
		}
		retry.Sleep(ctx, lasts-resumeRecordingTimeout)
		after, err := f.recordedExecutionCount(ctx)
		if err != nil || after != before || ctx.Err() != nil {
			return err
		}
		if lag := checkConsumersCaughtUp(ctx, f.installation.js); lag != nil {
			f.addRecordingStall(fmt.Sprintf("%s was frozen in a transaction, and for %s nobody "+
				"recorded anything: %v", s.name, lasts-resumeRecordingTimeout, lag))
		}
		return nil
	})
}

func (f *faultInjector) recordedExecutionCount(ctx context.Context) (int, error) {
	text, err := f.database.Query(ctx, "SELECT count(*) FROM executions")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}
