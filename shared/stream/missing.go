package stream

import "time"

// recreateDelay is how long a stream must be missing before a process may create it.
const recreateDelay = time.Second

// MissingStreams records which streams a process has found missing. It maps the name of each stream
// that was missing at the last check to the time of the first check at which it was missing. Only
// one goroutine may use it.
//
// A running process must not create a stream as soon as it is missing. When a server deletes a
// stream, it reports that the stream does not exist before it removes the stream's directory. If
// the stream is created again in between, the new stream loses its directory, and accepts no
// messages until the server restarts.
type MissingStreams map[string]time.Time

// RecordCheck records whether a check has found the named stream. creatable is true if the process
// may create the stream: it is missing, and an earlier check, at least recreateDelay ago, also
// found it missing.
func (m MissingStreams) RecordCheck(name string, exists bool) (creatable bool) {
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
