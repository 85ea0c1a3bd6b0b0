package stream

import "time"

// recreateDelay is the minimum time between the two checks at which a stream must be missing.
const recreateDelay = time.Second

// MissingStreams holds the streams that did not exist when a process last checked, by name, with
// the time of the first check at which they were missing. Only one goroutine may use it.
//
// A running process must not create a stream as soon as it is missing: a server that deletes a
// stream removes its directory after it has begun to answer that there is no such stream. If the
// stream is created meanwhile, the new one loses its directory, and accepts nothing until the
// server restarts.
type MissingStreams map[string]time.Time

// Note notes whether a stream exists. It returns true if the stream can be created: it is missing
// now, and was missing at a check at least a second before.
func (m MissingStreams) Note(name string, exists bool) (creatable bool) {
	if exists {
		delete(m, name)
		return false
	}
	since, ok := m[name]
	if !ok {
		m[name] = time.Now()
	}
	return ok && time.Since(since) >= recreateDelay
}
