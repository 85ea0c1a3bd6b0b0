// Package logtest provides a log that discards everything and a buffer that keeps a log's output,
// for use in tests.
package logtest

import (
	"bytes"
	"io"
	"sync"

	"github.com/sirupsen/logrus"
)

// Discard returns a log that discards everything.
func Discard() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// Buffer keeps everything that is written to it. It is safe for concurrent use.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends a line that was logged.
func (b *Buffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

// String returns everything that has been logged so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
