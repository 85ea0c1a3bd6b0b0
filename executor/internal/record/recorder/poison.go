package recorder

import "time"

// A message that the database rejects is retried alone, at least suspectTries times and for at
// least suspectTime, before it is quarantined. suspectTime is longer than the lock timeouts of the
// databases.
const (
	suspectTries = 4
	suspectTime  = 30 * time.Second
	suspectPause = 10 * time.Second
	maxSuspects  = 1_000
)

// poisonMessages tracks messages that the database has rejected until they are recorded or
// quarantined. In the meantime they stay in the stream, unacknowledged, so that they do not block
// other messages. Only the recorder's loop uses it.
type poisonMessages struct {
	// A message is quarantined once it has been rejected at least tries times and its first
	// rejection is at least time ago.
	tries int
	time  time.Duration
	seen  map[messageID]*poisonMessage
}

// messageID identifies a message by its stream and its sequence.
type messageID struct {
	stream   string
	sequence uint64
}

// poisonMessage counts how often one message was rejected.
type poisonMessage struct {
	since time.Time // when it was first rejected
	tries int       // number of rejections
}

func messageIDOf(e *entry) messageID { return messageID{e.meta.Stream, e.meta.Sequence.Stream} }

// mustQuarantine counts one rejection and reports whether the message must be quarantined now. If
// there are too many suspects, it is quarantined immediately, because suspects must not use up the
// consumer's limit of unacknowledged messages.
func (s *poisonMessages) mustQuarantine(e *entry, now time.Time) bool {
	key := messageIDOf(e)
	known := s.seen[key]
	if known == nil {
		if len(s.seen) >= maxSuspects {
			s.forget(now)
		}
		if len(s.seen) >= maxSuspects {
			return true
		}
		known = &poisonMessage{since: now}
		s.seen[key] = known
	}
	known.tries++
	return known.tries >= s.tries && now.Sub(known.since) >= s.time
}

// clear removes messages that have been recorded or quarantined.
func (s *poisonMessages) clear(entries []*entry) {
	if len(s.seen) == 0 {
		return
	}
	for _, e := range entries {
		delete(s.seen, messageIDOf(e))
	}
}

// forget removes messages that were first rejected long ago and have probably been delivered to
// another executor since.
func (s *poisonMessages) forget(now time.Time) {
	for key, known := range s.seen {
		if now.Sub(known.since) > 10*suspectTime {
			delete(s.seen, key)
		}
	}
}
