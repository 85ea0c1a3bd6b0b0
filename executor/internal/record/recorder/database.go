package recorder

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/ops"
)

// maxBackoff is the maximum pause between two attempts while the database fails.
const maxBackoff = 5 * time.Second

// backoff returns the pause after a number of consecutive failures.
func backoff(failures int) time.Duration {
	return min(100*time.Millisecond<<min(failures, 10), maxBackoff)
}

// logInterval is the minimum interval between log entries about a persistent failure.
const logInterval = time.Minute

// databaseHealth tracks, for all loops of a recorder, whether the database works. It reports an
// outage once, in readiness and in the log, even if many loops fail many times.
type databaseHealth struct {
	ready    *ops.Readiness
	failures prometheus.Counter // counts failed attempts
	log      logrus.FieldLogger

	mu       sync.Mutex
	since    time.Time // when the first attempt failed; zero if the database works
	attempts int       // number of failed attempts since then
	said     time.Time // when a failure was last logged
	told     bool      // whether the current failure was logged
}

// noteSuccess records that the database responded, even if it refused the data.
func (d *databaseHealth) noteSuccess() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready.MarkReady("database")
	if d.told {
		d.log.WithFields(logrus.Fields{
			"attempts": d.attempts,
			"seconds":  int(time.Since(d.since).Seconds()),
		}).
			Info("the database works again; what waited is recorded now")
	}
	d.since, d.attempts, d.told = time.Time{}, 0, false
}

// noteFailure records a failed attempt for which the data was not to blame.
func (d *databaseHealth) noteFailure(err error) {
	d.failures.Inc()
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	why := "the last transaction failed"
	if newer, ok := errors.AsType[*store.NewerSchemaError](err); ok {
		why = newer.Error()
	}
	d.ready.MarkNotReady("database",
		why+"; it is tried again, and the stream keeps what is not recorded")
	if d.since.IsZero() {
		d.since = now
	}
	d.attempts++
	if now.Sub(d.said) < logInterval {
		return
	}
	d.said, d.told = now, true
	d.log.WithError(err).WithField("attempts", d.attempts).
		Warn("the database does not record; it is tried again for as long as it takes, and the " +
			"stream keeps what is not recorded")
}

// isFailing reports whether the last attempt failed.
func (d *databaseHealth) isFailing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.since.IsZero()
}

// watchDuration marks the recorder as not ready if a transaction takes longer than limit. The
// caller must call done at the end of the transaction.
func (d *databaseHealth) watchDuration(limit time.Duration) (done func()) {
	var mu sync.Mutex
	ended := false
	timer := time.AfterFunc(limit, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			d.ready.MarkNotReady("database",
				"a transaction takes long; the stream keeps what is not recorded")
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}
