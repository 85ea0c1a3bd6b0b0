package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rerunsAfterEnd reports an execution that a runner received long after the execution's end. It
// does not report a redelivery soon after the end, which a lost acknowledgement may have caused. It
// ignores a truncated last line of the file.
func TestRanAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs")
	end := time.Now()
	line := func(id string, after time.Duration) string {
		return fmt.Sprintln(end.Add(after).UnixNano(), id)
	}
	text := line("again", -time.Second) + line("again", 2*maxRedeliveryDelay) +
		line("repeated", time.Second) +
		line("never-ended", 2*maxRedeliveryDelay) + "17"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	i := &installation{runners: []*service{
		{process: newProcess("", "runner-0"), runsFile: path},
		{
			process:  newProcess("", "runner-1"),
			runsFile: filepath.Join(t.TempDir(), "was-given-nothing"),
		},
	}}
	again, err := i.rerunsAfterEnd(map[string]time.Time{"again": end, "repeated": end})
	if err != nil {
		t.Fatal(err)
	}
	if len(again) != 1 || !strings.HasPrefix(again[0], "again by runner-0") {
		t.Errorf("ran again: %v, not the one execution that did", again)
	}
}
