package ops

import (
	"io"
	"os"
	"sync"
	"time"
)

// stderr receives the logs of all services of this process.
var stderr = &lineWriter{out: os.Stderr}

// Flush writes the collected lines of the log. Call it before the process ends.
func Flush() { stderr.flush() }

// lateBy is the longest time for which an event's line is held back. A process that is killed loses
// the lines of that time.
const lateBy = 5 * time.Millisecond

// maxWaiting is the maximum number of bytes of lines that are held back.
const maxWaiting = 32 << 10

// lineWriter collects lines and writes them together. It is safe for concurrent use.
type lineWriter struct {
	out io.Writer

	mu      sync.Mutex
	waiting []byte
	written time.Time // when lines were last written
	timer   bool      // whether a timer runs that will write the collected lines
}

// Write writes a line at once, after the collected ones.
func (w *lineWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, line...)
	return len(line), w.write()
}

// add writes a line at once, or collects it if others were written a moment ago.
func (w *lineWriter) add(line []byte, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, line...)
	switch {
	case len(w.waiting) > maxWaiting, !w.timer && now.Sub(w.written) >= lateBy:
		w.written = now
		_ = w.write() // like logrus, go on if the log cannot be written
	case !w.timer:
		w.timer = true
		time.AfterFunc(lateBy, w.flush)
	}
}

func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = false
	w.written = time.Now()
	_ = w.write()
}

// write writes the collected lines. The caller holds mu.
func (w *lineWriter) write() error {
	if len(w.waiting) == 0 {
		return nil
	}
	_, err := w.out.Write(w.waiting)
	w.waiting = w.waiting[:0]
	return err
}
