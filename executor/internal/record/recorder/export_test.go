package recorder

import "time"

// Hurry shortens the delays of a recorder. It must be called before Run.
func (r *Recorder) Hurry() {
	r.suspects.time, r.suspectRetryDelay = 100*time.Millisecond, 30*time.Millisecond
	r.ackWait, r.applyTimeout = 100*time.Millisecond, 300*time.Millisecond
	r.watchEvery = 50 * time.Millisecond
	r.compareEvery = 50 * time.Millisecond
	r.lostSearchDelay, r.lostRecheckDelay = 100*time.Millisecond, 10*time.Millisecond
	r.catchUpEvery = 10 * time.Millisecond
}

// DeliverAgain sets how long the server waits before it redelivers an unacknowledged message, and
// allows transactions to take longer than that. It must be called before Run.
func (r *Recorder) DeliverAgain(after time.Duration) {
	r.deliverAgain, r.applyTimeout = after, applyTimeout
}

// SearchEvery sets how often EndLost searches. It must be called before EndLost.
func (r *Recorder) SearchEvery(every time.Duration) {
	r.lostSearchInterval = func(time.Duration) time.Duration { return every }
}
