package recorder

import "time"

// Hurry shortens what a recorder waits for. It is to be called before Run.
func (r *Recorder) Hurry() {
	r.suspects.time, r.suspectPause = 100*time.Millisecond, 30*time.Millisecond
	r.ackWait, r.applyTimeout = 100*time.Millisecond, 300*time.Millisecond
	r.watchEvery = 50 * time.Millisecond
	r.compareEvery = 50 * time.Millisecond
	r.lostAfter, r.lostAgain = 100*time.Millisecond, 10*time.Millisecond
}

// DeliverAgain shortens after how long the server gives a message again that is not acknowledged, and lets transactions
// take longer than that. It is to be called before Run.
func (r *Recorder) DeliverAgain(after time.Duration) {
	r.deliverAgain, r.applyTimeout = after, applyTimeout
}

// SearchEvery sets how often EndLost searches. It is to be called before EndLost.
func (r *Recorder) SearchEvery(every time.Duration) {
	r.lostEvery = func(time.Duration) time.Duration { return every }
}
