package recorder

import "time"

// A message that the database refuses is retried alone, at least minSuspectTries times and for at
// least minSuspectTime, before it is put aside. minSuspectTime is longer than the lock timeouts of
// the databases.
const (
	minSuspectTries   = 4
	minSuspectTime    = 30 * time.Second
	suspectRetryDelay = 10 * time.Second
	maxSuspects       = 1_000
)

// suspectMessages tracks messages that the database has refused until they are recorded or put
// aside. In the meantime they stay in the stream, unacknowledged, so that they do not block other
// messages. Only the recorder's loop uses it.
type suspectMessages struct {
	// A message is put aside once it has been refused at least tries times and its first refusal is
	// at least time ago.
	tries int
	time  time.Duration
	seen  map[messageID]*suspectMessage
}

// messageID identifies a message by its stream and its sequence.
type messageID struct {
	stream   string
	sequence uint64
}

// suspectMessage counts how often one message was refused.
type suspectMessage struct {
	since time.Time // when it was first refused
	tries int       // number of refusals
}

func messageIDOf(e *entry) messageID { return messageID{e.meta.Stream, e.meta.Sequence.Stream} }

// mustPutAside counts one refusal and reports whether the message must be put aside now. If there
// are too many suspects, it is put aside immediately, because suspects must not use up the
// consumer's limit of unacknowledged messages.
func (s *suspectMessages) mustPutAside(e *entry, now time.Time) bool {
	key := messageIDOf(e)
	known := s.seen[key]
	if known == nil {
		if len(s.seen) >= maxSuspects {
			s.forget(now)
		}
		if len(s.seen) >= maxSuspects {
			return true
		}
		known = &suspectMessage{since: now}
		s.seen[key] = known
	}
	known.tries++
	return known.tries >= s.tries && now.Sub(known.since) >= s.time
}

// clear removes messages that have been recorded or put aside.
func (s *suspectMessages) clear(entries []*entry) {
	if len(s.seen) == 0 {
		return
	}
	for _, e := range entries {
		delete(s.seen, messageIDOf(e))
	}
}

// forget removes messages that were first refused long ago and have probably been delivered to
// another executor since.
func (s *suspectMessages) forget(now time.Time) {
	for key, known := range s.seen {
		if now.Sub(known.since) > 10*minSuspectTime {
			delete(s.seen, key)
		}
	}
}
