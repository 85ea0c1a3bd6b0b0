package soak

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// showProgress writes how it goes until the context ends: one line that changes on a
// terminal, else a new line every ten seconds.
func showProgress(ctx context.Context, out io.Writer, began time.Time, status func() string) {
	every, before, after := 10*time.Second, "", "\n"
	if isTerminal(out) {
		every, before, after = time.Second, "\r\033[K", ""
		defer func() { _, _ = fmt.Fprintln(out) }()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = fmt.Fprintf(out, "%s%6s  %s%s", before, time.Since(began).Round(time.Second), status(), after)
		}
	}
}

func isTerminal(out io.Writer) bool {
	file, isFile := out.(*os.File)
	if !isFile {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
