package recorder

import (
	"context"
	"time"
)

// Hurry shortens the recorder's delays so that tests are fast. Call it before Run.
func (r *Recorder) Hurry() {
	r.suspects.minRetryTime = 100 * time.Millisecond
	r.timings.poisonRetryDelay = 30 * time.Millisecond
	r.timings.slowTransactionThreshold, r.timings.applyTimeout = 100*time.Millisecond,
		300*time.Millisecond
	r.timings.consumerPollInterval, r.timings.heartbeatInterval = 50*time.Millisecond,
		500*time.Millisecond
	r.timings.databaseCompareInterval = 50 * time.Millisecond
	r.timings.lostSearchDelay = 100 * time.Millisecond
	r.timings.lostRecheckDelay = 10 * time.Millisecond
	r.timings.catchUpPollInterval = 10 * time.Millisecond
	r.timings.uncertaintyGrace = 300 * time.Millisecond
}

// DeliverAgain sets how long the server waits before it redelivers an unacknowledged message, and
// allows transactions to take longer than that. Call it before Run.
func (r *Recorder) DeliverAgain(after time.Duration) {
	r.timings.consumerAckWait, r.timings.applyTimeout = after, applyTimeout
}

// SearchIntervals sets the function that returns the interval between searches of
// EndLostExecutions. Call it before EndLostExecutions.
func (r *Recorder) SearchIntervals(interval func(maxAge time.Duration) time.Duration) {
	r.timings.lostSearchInterval = interval
}

// CompareEvery sets the interval at which the database is compared with the streams. Call it before
// Run.
func (r *Recorder) CompareEvery(interval time.Duration) {
	r.timings.databaseCompareInterval = interval
}

// CheckSharedRecorded returns an error unless everything in the shared streams is recorded in the
// database.
func (r *Recorder) CheckSharedRecorded(ctx context.Context) error {
	return r.checkAllRecorded(ctx, sharedStreamPair)
}
