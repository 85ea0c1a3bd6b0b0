package soak

import (
	"context"
	"io"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/terminal"
	"github.com/hookstart/hookstart/shared/retry"
)

// showProgress shows the text that status returns, with the time since began, until ctx ends: every
// second on a terminal, otherwise every ten seconds.
func showProgress(ctx context.Context, out io.Writer, began time.Time, status func() string) {
	line := terminal.NewProgressLine(out)
	defer line.Done()
	every := 10 * time.Second
	if line.Rewrites() {
		every = time.Second
	}
	retry.Every(ctx, every, func() {
		line.Show("%6s  %s", time.Since(began).Round(time.Second), status())
	})
}
