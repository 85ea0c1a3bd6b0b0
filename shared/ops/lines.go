package ops

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// stderr receives the logs of all services in this process.
var stderr = &batchedLineWriter{out: os.Stderr}

// FlushLog writes the log lines that have not been written yet. It must be called before the
// process exits. If the log cannot be written, FlushLog gives up after flushTimeout.
func FlushLog() { stderr.flush(flushTimeout) }

const flushTimeout = time.Second

// maxLineDelay is how long a line from LogEvent may be held back before it is written. If the
// process is killed, the lines that are held back at that moment are lost.
const maxLineDelay = 5 * time.Millisecond

// maxHeldBackBytes is the maximum total size in bytes of the lines that are held back. Once they
// exceed it, they are written immediately.
const maxHeldBackBytes = 32 << 10

// maxWaitingBytes is the maximum total size in bytes of the lines that wait while an earlier write
// blocks, for example because the reader of stderr has stopped. Further lines are dropped.
const maxWaitingBytes = 1 << 20

// batchedLineWriter collects lines, and writes them together in a separate goroutine, so that
// callers are never blocked if the log cannot be written. It is safe for concurrent use.
type batchedLineWriter struct {
	out io.Writer

	mu           sync.Mutex
	waitingLines []byte
	spare        []byte // an empty buffer to swap with waitingLines; nil during a write
	droppedLines int    // number of lines that were dropped since the last write
	lastWrite    time.Time
	timer        *time.Timer // starts a write; nil until the first line is held back
	timerRunning bool        // whether timer is running
	writing      bool        // whether a goroutine has been started to write, and has not ended
	// writeNow means that the goroutine that runs writeWaitingLines must write the waiting lines
	// immediately, instead of leaving them to the timer.
	writeNow bool
	// drained is closed when no lines are left. It is nil unless flush is waiting.
	drained chan struct{}
}

// Write appends a line to the waiting ones, and makes a goroutine write them all immediately. It
// returns before the line is written.
func (w *batchedLineWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.collect(line)
	w.startWriting()
	return len(line), nil
}

// writeBatched queues a line from LogEvent, and returns before the line is written. If other lines
// were written less than maxLineDelay ago, it holds the line back, so that it can be written
// together with later ones.
func (w *batchedLineWriter) writeBatched(line []byte, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.collect(line)
	switch {
	case w.writing:
	case len(w.waitingLines) > maxHeldBackBytes,
		!w.timerRunning && now.Sub(w.lastWrite) >= maxLineDelay:
		w.startWriting()
	default:
		w.startTimer()
	}
}

// collect appends a line to waitingLines. If these would then exceed maxWaitingBytes, it counts the
// line as dropped instead. The caller must hold mu.
func (w *batchedLineWriter) collect(line []byte) {
	if len(w.waitingLines)+len(line) > maxWaitingBytes {
		w.droppedLines++
		return
	}
	w.waitingLines = append(w.waitingLines, line...)
}

// startWriting makes a goroutine write the waiting lines: the one that is already writing, or else
// a new one. The caller must hold mu.
func (w *batchedLineWriter) startWriting() {
	w.writeNow = true
	if !w.writing {
		w.writing = true
		go w.writeWaitingLines()
	}
}

// startTimer schedules a write of the collected lines after maxLineDelay. The caller must hold mu.
func (w *batchedLineWriter) startTimer() {
	switch {
	case w.timerRunning:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(maxLineDelay, w.writeHeldBack)
	default:
		w.timer.Reset(maxLineDelay)
	}
	w.timerRunning = true
}

// writeHeldBack writes the lines that were held back. The timer calls it.
func (w *batchedLineWriter) writeHeldBack() {
	w.mu.Lock()
	w.timerRunning = false
	if w.writing {
		w.mu.Unlock()
		return
	}
	w.writing, w.writeNow = true, true
	w.mu.Unlock()
	w.writeWaitingLines()
}

// writeWaitingLines writes the waiting lines, until none are left or only lines remain that the
// timer will write.
func (w *batchedLineWriter) writeWaitingLines() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.waitingLines) > 0 &&
		(w.writeNow || w.drained != nil || len(w.waitingLines) > maxHeldBackBytes) {
		lines, dropped := w.waitingLines, w.droppedLines
		w.waitingLines, w.spare, w.droppedLines, w.writeNow = w.spare, nil, 0, false
		w.mu.Unlock()
		err := w.writeLines(lines, dropped)
		w.mu.Lock()
		if err != nil {
			w.droppedLines += bytes.Count(lines, []byte("\n")) + dropped
		}
		w.spare, w.lastWrite = lines[:0], time.Now()
	}
	w.writing = false
	switch {
	case len(w.waitingLines) > 0:
		w.startTimer()
	case w.drained != nil:
		close(w.drained)
		w.drained = nil
	}
}

// writeLines writes lines. If dropped is not 0, it appends a line that reports how many log lines
// were dropped.
func (w *batchedLineWriter) writeLines(lines []byte, dropped int) error {
	if dropped > 0 {
		lines = jsonLineFormatter{filepath.Base(os.Args[0])}.appendLine(lines, logrus.WarnLevel,
			time.Now(), "log lines were dropped, because the log could not be written",
			[]Field{Number("dropped_lines", dropped)})
	}
	_, err := w.out.Write(lines)
	return err
}

// flush writes the collected lines immediately. It returns when all of them are written or the
// timeout has passed.
func (w *batchedLineWriter) flush(timeout time.Duration) {
	w.mu.Lock()
	if len(w.waitingLines) == 0 && !w.writing {
		w.mu.Unlock()
		return
	}
	if w.drained == nil {
		w.drained = make(chan struct{})
	}
	empty := w.drained
	w.startWriting()
	w.mu.Unlock()
	select {
	case <-empty:
	case <-time.After(timeout):
	}
}
