package recorder

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/ops"
)

// maxBackoff is the longest pause between two attempts while the database fails. Each of the
// recorder's loops makes one attempt at a time.
const maxBackoff = 5 * time.Second

// backoff is the pause after so many failures in a row, and one more.
func backoff(failures int) time.Duration {
	return min(100*time.Millisecond<<min(failures, 10), maxBackoff)
}

// sayEvery bounds how often a fault that lasts is logged.
const sayEvery = time.Minute

// database is what all loops of a recorder know of the database: whether it works. It says so
// in readiness and logs, however many loops fail and however often.
type database struct {
	ready    *ops.Readiness
	failures prometheus.Counter
	log      logrus.FieldLogger

	mu       sync.Mutex
	since    time.Time // of the first failure; zero: it works
	attempts int       // failed ones since then
	said     time.Time // the last line that it fails
	told     bool      // there was such a line since it began to fail
}

// works notes that the database answered, whatever it said of the data.
func (d *database) works() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready.Ready("database")
	if d.told {
		d.log.WithFields(logrus.Fields{"attempts": d.attempts, "seconds": int(time.Since(d.since).Seconds())}).
			Info("the database works again; what waited is recorded now")
	}
	d.since, d.attempts, d.told = time.Time{}, 0, false
}

// fails notes an attempt that failed through no fault of the data.
func (d *database) fails(err error) {
	d.failures.Inc()
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.ready.NotReady("database", "the last transaction failed; it is tried again, and the stream keeps what is not recorded")
	if d.since.IsZero() {
		d.since = now
	}
	d.attempts++
	if now.Sub(d.said) < sayEvery {
		return
	}
	d.said, d.told = now, true
	d.log.WithError(err).WithField("attempts", d.attempts).
		Warn("the database does not record; it is tried again for as long as it takes, and the stream keeps what is not recorded")
}

// isFailing says that the last attempt failed.
func (d *database) isFailing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.since.IsZero()
}

// expect says that the recorder is not ready when a transaction takes longer than that. The
// transaction's end calls done.
func (d *database) expect(limit time.Duration) (done func()) {
	var mu sync.Mutex
	ended := false
	timer := time.AfterFunc(limit, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			d.ready.NotReady("database", "a transaction takes long; the stream keeps what is not recorded")
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}
