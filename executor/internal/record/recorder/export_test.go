package recorder

import (
	"context"
	"time"
)

// Hurry shortens the recorder's delays so that tests are fast. Call it before Run.
func (r *Recorder) Hurry() {
	r.suspects.minRetryTime, r.timing.poisonRetryDelay = 100*time.Millisecond, 30*time.Millisecond
	r.timing.slowTransactionThreshold, r.timing.applyTimeout = 100*time.Millisecond,
		300*time.Millisecond
	r.timing.consumerPollInterval, r.timing.heartbeatInterval = 50*time.Millisecond,
		500*time.Millisecond
	r.timing.databaseCompareInterval = 50 * time.Millisecond
	r.timing.lostSearchDelay, r.timing.lostRecheckDelay = 100*time.Millisecond, 10*time.Millisecond
	r.timing.catchUpPollInterval = 10 * time.Millisecond
	r.timing.uncertaintyGrace = 300 * time.Millisecond
}

// DeliverAgain sets how long the server waits before it redelivers an unacknowledged message, and
// allows transactions to take longer than that. Call it before Run.
func (r *Recorder) DeliverAgain(after time.Duration) {
	r.timing.consumerAckWait, r.timing.applyTimeout = after, applyTimeout
}

// SearchEvery sets the interval between searches of EndLostExecutions. Call it before
// EndLostExecutions.
func (r *Recorder) SearchEvery(every time.Duration) {
	r.timing.lostSearchInterval = func(time.Duration) time.Duration { return every }
}

// CompareEvery sets the interval at which the database is compared with the streams. Call it before
// Run.
func (r *Recorder) CompareEvery(interval time.Duration) {
	r.timing.databaseCompareInterval = interval
}

// CheckSharedRecorded returns an error unless everything in the shared streams is recorded in the
// database.
func (r *Recorder) CheckSharedRecorded(ctx context.Context) error {
	return r.checkAllRecorded(ctx, sharedStartReportPair)
}
