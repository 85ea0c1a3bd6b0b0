package ops

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a writer whose Write blocks until the channel open is closed.
type pipe struct {
	open chan struct{}
	text bytes.Buffer
}

func (p *pipe) Write(lines []byte) (int, error) {
	<-p.open
	return p.text.Write(lines)
}

// While the log cannot be written, logging does not block, and the memory that it uses is bounded.
// Afterwards, a line reports how many lines were dropped.
func TestALogThatNobodyReadsBlocksNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &pipe{open: make(chan struct{})}
		lines := &batchedLineWriter{out: out}
		const total, length = 30_000, 100
		for i := range total {
			line := fmt.Appendf(nil, "%*d\n", length-1, i)
			if i%10 == 9 {
				if _, err := lines.Write(line); err != nil {
					t.Fatal(err)
				}
			} else {
				lines.writeBatched(line, time.Now())
			}
			if i == 0 {
				synctest.Wait() // wait until the first write blocks
			}
		}
		begin := time.Now()
		lines.flush(time.Second)
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("flush waited %s", waited)
		}
		close(out.open)
		lines.flush(time.Minute)
		got := strings.SplitAfter(out.text.String(), "\n")
		kept := 1 + maxWaitingBytes/length
		for i := range kept {
			if !strings.HasSuffix(got[i], fmt.Sprintf(" %d\n", i)) {
				t.Fatalf("line %d is %q", i, got[i])
			}
		}
		if report := strings.Join(got[kept:], ""); strings.Count(report, "\n") != 1 ||
			!strings.Contains(report, fmt.Sprintf(`"dropped_lines":%d,`, total-kept)) ||
			!strings.Contains(report, `"level":"warning"`) {
			t.Errorf("%q; %d lines were dropped", report, total-kept)
		}
		lines.writeBatched([]byte("next\n"), time.Now())
		lines.flush(time.Minute)
		if !strings.HasSuffix(out.text.String(), "}\nnext\n") {
			t.Error("the report came twice, or the next line is missing")
		}
	})
}

// fullDisk is a writer that fails while it is full.
type fullDisk struct {
	full bool
	text bytes.Buffer
}

func (d *fullDisk) Write(lines []byte) (int, error) {
	if d.full {
		return 0, errors.New("no space left on device")
	}
	return d.text.Write(lines)
}

// If writing to the log fails, the lines of that write are counted as dropped. The next write that
// succeeds includes a line that reports their number.
func TestLinesThatFailedAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &fullDisk{full: true}
		lines := &batchedLineWriter{out: out}
		for range 3 {
			lines.writeBatched([]byte("lost\n"), time.Now())
			lines.flush(time.Minute)
		}
		out.full = false
		lines.writeBatched([]byte("next\n"), time.Now())
		lines.flush(time.Minute)
		if text := out.text.String(); !strings.HasPrefix(text, "next\n{") ||
			!strings.Contains(text, `"dropped_lines":3,`) {
			t.Error(text)
		}
	})
}

// The line of a fatal error is written before the program exits.
func TestFatalLineIsWritten(t *testing.T) {
	t.Parallel()
	if flag.Arg(0) == "fatal" { // this process is the program that fails
		log, err := NewLogger("ingress", "info")
		if err != nil {
			t.Fatal(err)
		}
		log.Fatal("the last line")
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFatalLineIsWritten$",
		"fatal")
	var output bytes.Buffer
	command.Stderr = &output
	if err := command.Run(); command.ProcessState == nil || command.ProcessState.ExitCode() != 1 {
		t.Error(err)
	}
	if strings.Count(output.String(), `"msg":"the last line"`) != 1 {
		t.Errorf("%q", output.String())
	}
}
