package recorder

import "time"

// A message that the database refuses is retried alone, at least this often and for at least this
// time, before it is quarantined. The time is longer than any lock or timeout of the database.
const (
	suspectTries = 4
	suspectTime  = 30 * time.Second
	suspectPause = 10 * time.Second
	maxSuspects  = 1_000
)

// poisonMessages holds the messages that the database refused, until they are recorded or
// quarantined. They wait in the stream, so that they do not block other messages. Only the
// recorder's loop uses them.
type poisonMessages struct {
	// A message is quarantined when it was refused at least tries times, the first time at least
	// time ago.
	tries int
	time  time.Duration
	seen  map[origin]*poisonMessage
}

// origin identifies a message by its stream and its sequence there.
type origin struct {
	stream   string
	sequence uint64
}

// poisonMessage counts the refusals of one message.
type poisonMessage struct {
	since time.Time // when it was first refused
	tries int       // number of refusals
}

func originOf(e *entry) origin { return origin{e.meta.Stream, e.meta.Sequence.Stream} }

// mustQuarantine counts one refusal and reports whether the message has to be quarantined now. If
// there are too many suspects, it is quarantined at once, because suspects must not use up the
// consumer's limit of unacknowledged messages.
func (s *poisonMessages) mustQuarantine(e *entry, now time.Time) bool {
	key := originOf(e)
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

// clear removes messages that are recorded or quarantined.
func (s *poisonMessages) clear(entries []*entry) {
	if len(s.seen) == 0 {
		return
	}
	for _, e := range entries {
		delete(s.seen, originOf(e))
	}
}

// forget removes messages that have been delivered to another executor meanwhile.
func (s *poisonMessages) forget(now time.Time) {
	for key, known := range s.seen {
		if now.Sub(known.since) > 10*suspectTime {
			delete(s.seen, key)
		}
	}
}
