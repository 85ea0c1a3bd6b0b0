package ops

import (
	"io"
	"os"
	"sync"
	"time"
)

// stderr receives the logs of all services in this process.
var stderr = &batchedLineWriter{out: os.Stderr}

// FlushLog writes the collected lines of the log. It must be called before the process exits.
func FlushLog() { stderr.flush() }

// maxLineDelay is how long an event's line may be held back. If the process is killed, the lines of
// that period are lost.
const maxLineDelay = 5 * time.Millisecond

// maxBufferedBytes is the maximum total size in bytes of the lines that are held back.
const maxBufferedBytes = 32 << 10

// batchedLineWriter collects lines and writes them together. It is safe for concurrent use.
type batchedLineWriter struct {
	out io.Writer

	mu      sync.Mutex
	waiting []byte
	written time.Time // when lines were last written
	timer   bool      // whether a timer is running that will write the collected lines
}

// Write writes a line immediately, after the collected ones.
func (w *batchedLineWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, line...)
	return len(line), w.write()
}

// add writes a line immediately, or collects it if others were written a moment ago.
func (w *batchedLineWriter) add(line []byte, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, line...)
	switch {
	case len(w.waiting) > maxBufferedBytes, !w.timer && now.Sub(w.written) >= maxLineDelay:
		w.written = now
		_ = w.write() // like logrus, go on if the log cannot be written
	case !w.timer:
		w.timer = true
		time.AfterFunc(maxLineDelay, w.flush)
	}
}

// flush writes the collected lines when the timer has expired or the process is about to exit.
func (w *batchedLineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = false
	w.written = time.Now()
	_ = w.write()
}

// write writes the collected lines. The caller must hold mu.
func (w *batchedLineWriter) write() error {
	if len(w.waiting) == 0 {
		return nil
	}
	_, err := w.out.Write(w.waiting)
	w.waiting = w.waiting[:0]
	return err
}
