package recorder

import "time"

// A message that the database refuses is tried alone, that often and for that long, before it
// is put aside: for longer than any lock or timeout of the database.
const (
	suspectTries = 4
	suspectTime  = 30 * time.Second
	suspectPause = 10 * time.Second
	maxSuspects  = 1_000
)

// suspects are the messages that the database refused, until they are recorded or put aside.
// They wait in the stream, so that they hold up nothing else. Only the recorder's loop uses
// them.
type suspects struct {
	tries int
	time  time.Duration
	seen  map[origin]*suspect
}

type origin struct {
	stream   string
	sequence uint64
}

type suspect struct {
	since time.Time
	tries int
}

func originOf(e *entry) origin { return origin{e.meta.Stream, e.meta.Sequence.Stream} }

// certain counts one refusal and says whether it was the last one needed. Past a bound
// nothing more waits: a flood must not use up the consumer's places.
func (s *suspects) certain(e *entry, now time.Time) bool {
	key := originOf(e)
	known := s.seen[key]
	if known == nil {
		if len(s.seen) >= maxSuspects {
			s.forget(now)
		}
		if len(s.seen) >= maxSuspects {
			return true
		}
		known = &suspect{since: now}
		s.seen[key] = known
	}
	known.tries++
	return known.tries >= s.tries && now.Sub(known.since) >= s.time
}

// clear forgets messages about which is decided.
func (s *suspects) clear(entries []*entry) {
	if len(s.seen) == 0 {
		return
	}
	for _, e := range entries {
		delete(s.seen, originOf(e))
	}
}

// forget drops those that have gone to another executor meanwhile.
func (s *suspects) forget(now time.Time) {
	for key, known := range s.seen {
		if now.Sub(known.since) > 10*suspectTime {
			delete(s.seen, key)
		}
	}
}
