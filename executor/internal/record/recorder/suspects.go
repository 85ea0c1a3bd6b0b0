package recorder

import "time"

// If the database refuses a message even in a transaction of its own, the recorder retries it at
// least minPoisonTries times and for at least minPoisonRetryTime, which is longer than the lock
// timeouts of the databases. Then it puts the message aside.
const (
	minPoisonTries     = 4
	minPoisonRetryTime = 30 * time.Second
	poisonRetryDelay   = 10 * time.Second
	maxPoisonSuspects  = 1_000
)

// poisonSuspects tracks the messages that the database has refused, until they are recorded or put
// aside. Until then, they stay unacknowledged in the stream and do not block other messages. Only
// the recording goroutine uses poisonSuspects, so it needs no lock.
type poisonSuspects struct {
	// A message is put aside after at least minTries refusals, and at least minRetryTime after the
	// first one.
	minTries     int
	minRetryTime time.Duration
	byMessageKey map[messageKey]*poisonSuspect
}

// messageKey identifies a message by its stream and its sequence.
type messageKey struct {
	stream   string
	sequence uint64
}

// poisonSuspect is the history of one message that was refused.
type poisonSuspect struct {
	firstRefused time.Time // when it was first refused
	refusals     int       // number of refusals
}

func messageKeyOf(e *entry) messageKey { return messageKey{e.meta.Stream, e.meta.Sequence.Stream} }

// mustPutAside notes that the database has refused an entry's message, and reports whether the
// message must be put aside now. If there are already too many suspects, it returns true at the
// first refusal: suspects stay unacknowledged, and the consumer allows only a limited number of
// unacknowledged messages.
func (s *poisonSuspects) mustPutAside(e *entry, now time.Time) bool {
	key := messageKeyOf(e)
	known := s.byMessageKey[key]
	if known == nil {
		if len(s.byMessageKey) >= maxPoisonSuspects {
			s.removeStale(now)
		}
		if len(s.byMessageKey) >= maxPoisonSuspects {
			return true
		}
		known = &poisonSuspect{firstRefused: now}
		s.byMessageKey[key] = known
	}
	known.refusals++
	return known.refusals >= s.minTries && now.Sub(known.firstRefused) >= s.minRetryTime
}

// remove removes the messages of entries from the suspects, after they have been recorded or put
// aside.
func (s *poisonSuspects) remove(entries []*entry) {
	if len(s.byMessageKey) == 0 {
		return
	}
	for _, e := range entries {
		delete(s.byMessageKey, messageKeyOf(e))
	}
}

// removeStale removes suspects that were first refused long ago, because another executor has
// probably handled their messages since.
func (s *poisonSuspects) removeStale(now time.Time) {
	for key, known := range s.byMessageKey {
		if now.Sub(known.firstRefused) > 10*minPoisonRetryTime {
			delete(s.byMessageKey, key)
		}
	}
}
