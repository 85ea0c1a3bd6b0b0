package ops

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

func newLog(t *testing.T, out io.Writer) *logrus.Logger {
	t.Helper()
	log, err := NewLogger("ingress", "info")
	if err != nil {
		t.Fatal(err)
	}
	log.SetOutput(out)
	return log
}

// LogEvent writes the same line as logrus, apart from the order of the members.
func TestEventIsWhatLogrusWrites(t *testing.T) {
	t.Parallel()
	members := func() []Field {
		return []Field{
			Number("status", 200), Number("duration_ms", 0.25), Text("workflow_id", "a\"\n\u2028é"),
			Text("code", ""),
			True("deduplicated"), Text("node", "n"), Text("publish", "p"), Text("zone", "z"),
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600))
	for _, list := range [][]Field{members(), nil} {
		var fast, slow bytes.Buffer
		lines := &batchedLineWriter{out: &fast}
		LogEvent(newLog(t, lines), logrus.WarnLevel, at, "webhook", list)
		LogEvent(newLog(t, &slow), logrus.WarnLevel, at, "webhook", list)
		lines.flush(time.Minute)
		if fast.String() != slow.String() || slow.Len() == 0 {
			t.Errorf("%s instead of %s", fast.String(), slow.String())
		}
	}
	var out bytes.Buffer
	lines := &batchedLineWriter{out: &out}
	LogEvent(newLog(t, lines), logrus.DebugLevel, at, "quiet", nil)
	lines.flush(time.Minute)
	if out.Len() > 0 {
		t.Error("logged below the level:", out.String())
	}
}

// counted is a writer that stores the text it receives, counts the writes, and sends a value on the
// channel came after each write.
type counted struct {
	mu     sync.Mutex
	text   strings.Builder
	writes int
	came   chan struct{}
}

func (c *counted) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	c.text.Write(p)
	select {
	case c.came <- struct{}{}:
	default:
	}
	return len(p), nil
}

// LogEvent writes the first line immediately. It holds back the lines that follow for a short time,
// and writes them together. A line that is logged with logrus itself is written immediately, after
// the lines that are held back.
func TestLinesWaitForEachOther(t *testing.T) {
	t.Parallel()
	out := &counted{came: make(chan struct{}, 1)}
	lines := &batchedLineWriter{out: out}
	now := time.Now()
	lines.writeBatched([]byte("1\n"), now)
	<-out.came
	for range 3 {
		lines.writeBatched([]byte("2\n"), now)
	}
	<-out.came
	lines.writeBatched([]byte("3\n"), now)
	if _, err := lines.Write([]byte("4\n")); err != nil {
		t.Fatal(err)
	}
	<-out.came
	lines.flush(time.Minute)
	out.mu.Lock()
	defer out.mu.Unlock()
	if got := out.text.String(); got != "1\n2\n2\n2\n3\n4\n" || out.writes == 6 {
		t.Errorf("%d writes: %q", out.writes, got)
	}
}

// BenchmarkLogEvent compares LogEvent with logrus and its JSON formatter.
func BenchmarkLogEvent(b *testing.B) {
	log := func(out io.Writer) *logrus.Logger {
		log, err := NewLogger("ingress", "info")
		if err != nil {
			b.Fatal(err)
		}
		log.SetOutput(out)
		return log
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	b.Run("hookstart", func(b *testing.B) {
		lines := log(&batchedLineWriter{out: io.Discard})
		b.ReportAllocs()
		for b.Loop() {
			LogEvent(lines, logrus.InfoLevel, at, "webhook", requestFields())
		}
	})
	b.Run("logrus", func(b *testing.B) {
		lines := log(io.Discard)
		lines.SetFormatter(&logrus.JSONFormatter{})
		b.ReportAllocs()
		for b.Loop() {
			LogEvent(lines, logrus.InfoLevel, at, "webhook", requestFields())
		}
	})
}

// requestFields returns the fields of a request's log line.
func requestFields() []Field {
	return []Field{
		Text("method", "POST"), Text("path", "/webhooks/workflow-17"),
		Number("status", 200), Number("duration_ms", 0.25), Number("body_bytes", 1012),
		Text("workflow_id", "workflow-17"), Text("node_id", "webhook"),
		Text("execution_id", "0b989ba4-242f-81e5-81e1-c7b6966d2516"),
		Text("account_id", "acme"), Text("client", "127.0.0.1"), Number("sequence", 123456),
	}
}
