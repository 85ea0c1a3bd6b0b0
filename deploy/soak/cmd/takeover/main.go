// Command takeover kills a site under load and lets a second site, which has a copy of the first
// site's data, take over. It then prints which executions were lost or duplicated by the takeover.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hookstart/hookstart/deploy/soak"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	if soak.RunAsRole() {
		return
	}
	program.Main("takeover",
		"A site of three hosts that is killed under load, and a second site with a copy, which "+
			"takes over; then a ledger. It needs Linux and root's rights.", run)
}

// run calls soak.RunTakeover. If the machine cannot create the simulated hosts, run prints the
// reason and returns nil.
func run(ctx context.Context, c soak.TakeoverConfig) error {
	err := soak.RunTakeover(ctx, c)
	if errors.Is(err, errors.ErrUnsupported) {
		_, _ = fmt.Fprintln(os.Stdout, "skipped:", err)
		return nil
	}
	return err
}
