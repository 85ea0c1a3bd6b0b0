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

// maxBackoff is the longest pause between two attempts while the database fails.
const maxBackoff = 5 * time.Second

// backoff returns the pause after the given number of consecutive failures. The pause doubles with
// each failure, up to maxBackoff.
func backoff(failures int) time.Duration {
	return min(100*time.Millisecond<<min(failures, 10), maxBackoff)
}

// logInterval is the minimum interval between log entries about a persistent failure.
const logInterval = time.Minute

// databaseLoop identifies a loop of the recorder that writes to the database.
type databaseLoop int

const (
	recordingLoop databaseLoop = iota // the loop of Run
	reportsLoop                       // the loop of ApplyIngressReports
)

// databaseHealth tracks whether the database works. All loops of a recorder that write to the
// database share it. It reports an outage in readiness and, at most once per logInterval, in the
// log, no matter how many loops fail and how often. Because the loops write to different tables,
// the outage ends only when every loop that failed has succeeded again.
type databaseHealth struct {
	ready    *ops.Readiness
	failures prometheus.Counter // counts failed attempts
	log      logrus.FieldLogger

	mu              sync.Mutex
	failingLoops    map[databaseLoop]bool // the loops whose last attempt failed
	transactionSlow bool                  // whether a transaction of recordingLoop takes too long
	// when the first attempt of the outage failed; zero if the database works
	failingSince   time.Time
	failedAttempts int       // number of failed attempts since failingSince
	lastLogged     time.Time // when a failure was last logged
	outageLogged   bool      // whether the current outage was logged
}

// noteSuccess records that the database responded to a loop, even if only to refuse the loop's
// data.
func (d *databaseHealth) noteSuccess(loop databaseLoop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.failingLoops, loop)
	if loop == recordingLoop {
		d.transactionSlow = false
	}
	if len(d.failingLoops) > 0 || d.transactionSlow {
		return
	}
	d.ready.MarkReady("database")
	if d.outageLogged {
		d.log.WithFields(logrus.Fields{
			"attempts": d.failedAttempts,
			"seconds":  int(time.Since(d.failingSince).Seconds()),
		}).
			Info("the database works again; what waited is recorded now")
	}
	d.failingSince, d.failedAttempts, d.outageLogged = time.Time{}, 0, false
}

// noteFailure records that a loop's attempt failed for a reason other than the data that it tried
// to write. It marks the recorder as not ready.
func (d *databaseHealth) noteFailure(loop databaseLoop, err error) {
	d.failures.Inc()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failingLoops == nil {
		d.failingLoops = map[databaseLoop]bool{}
	}
	d.failingLoops[loop] = true
	now := time.Now()
	why := "the last transaction failed"
	if newer, ok := errors.AsType[*store.NewerSchemaError](err); ok {
		why = newer.Error()
	}
	d.ready.MarkNotReady("database",
		why+"; the recorder retries, and the stream keeps what is not recorded")
	if d.failingSince.IsZero() {
		d.failingSince = now
	}
	d.failedAttempts++
	if now.Sub(d.lastLogged) < logInterval {
		return
	}
	d.lastLogged, d.outageLogged = now, true
	d.log.WithError(err).WithField("attempts", d.failedAttempts).
		Warn("the database does not record; retrying until it does; the stream keeps what is " +
			"not recorded")
}

// isFailing reports whether a loop's last attempt failed.
func (d *databaseHealth) isFailing(loop databaseLoop) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failingLoops[loop]
}

// watchTransaction marks the recorder as not ready if a transaction of recordingLoop takes longer
// than limit. The caller must call the returned function when the transaction has ended.
func (d *databaseHealth) watchTransaction(limit time.Duration) (done func()) {
	var mu sync.Mutex
	ended := false
	timer := time.AfterFunc(limit, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.transactionSlow = true
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
