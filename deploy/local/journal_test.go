package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hookstart/hookstart/shared/program"
)

// Other users can read systemd's journal. If the program's output goes to the journal, the program
// prints neither the generated admin token nor the sign-in link. It prints both to any other
// output, even if JOURNAL_STREAM is set because an ancestor of the process is a systemd service.
func TestTheJournalGetsNoToken(t *testing.T) {
	for _, isJournal := range []bool{true, false} {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := out.Stat()
		if err != nil {
			t.Fatal(err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatalf("no inode: %T", info.Sys())
		}
		inode := stat.Ino
		if !isJournal {
			inode++
		}
		t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", stat.Dev, inode))
		folder := t.TempDir()
		var c Config
		if err := program.Parse(&c, "--data-dir="+folder, "--no-demo", "--ingress-addr=127.0.0.1:0",
			"--executor-addr=127.0.0.1:0", "--nats-addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
			"--log-level=error"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		var token string
		c.Out, c.OnReady = out, func(started StartedServices) {
			token = started.AdminToken
			cancel()
		}
		if err := Run(ctx, c); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		printed := strings.Contains(string(text), "?once=") ||
			strings.Contains(string(text), token)
		named := strings.Contains(string(text), filepath.Join(folder, "admin-token"))
		if token == "" || printed == isJournal || named != isJournal {
			t.Errorf("journal: %t, printed: %t, file named: %t", isJournal, printed, named)
		}
		_ = out.Close()
	}
}
