// Package logtest has logs for tests: one that nobody reads, and where one is kept.
package logtest

import (
	"bytes"
	"io"
	"sync"

	"github.com/sirupsen/logrus"
)

// Quiet is a log that nobody reads.
func Quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// Buffer keeps what is written to it. It is safe for concurrent use.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *Buffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

// String is all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
