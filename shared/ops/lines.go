package ops

import (
	"io"
	"os"
	"sync"
	"time"
)

// stderr is where the logs of all services of this process go.
var stderr = &lineWriter{out: os.Stderr}

// Flush writes what is left of the log. Whoever ends the process calls it.
func Flush() { stderr.flush() }

// lateBy is how long an event's line may wait for others. A process that is killed loses the lines of that time.
const lateBy = 5 * time.Millisecond

// maxWaiting is how many bytes of lines wait at most.
const maxWaiting = 32 << 10

// lineWriter writes lines. It is safe for concurrent use.
type lineWriter struct {
	out io.Writer

	mu      sync.Mutex
	waiting []byte
	written time.Time // when lines were last written
	timer   bool      // runs: it will write what waits
}

// Write writes a line at once, after those that wait.
func (w *lineWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, line...)
	return len(line), w.write()
}

// add writes a line soon; at once, unless others were written a moment ago.
func (w *lineWriter) add(line []byte, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, line...)
	switch {
	case len(w.waiting) > maxWaiting, !w.timer && now.Sub(w.written) >= lateBy:
		w.written = now
		_ = w.write() // as logrus: who cannot log goes on
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

// write is called with mu held.
func (w *lineWriter) write() error {
	if len(w.waiting) == 0 {
		return nil
	}
	_, err := w.out.Write(w.waiting)
	w.waiting = w.waiting[:0]
	return err
}
