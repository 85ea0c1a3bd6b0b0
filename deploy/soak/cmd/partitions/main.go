// Command partitions cuts three hosts off from each other under load. It then prints a ledger that
// compares the responses to senders and operators with what was stored.
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
	program.Main("partitions",
		"Three hosts in network namespaces, whose network is broken under load; then a ledger. "+
			"It needs Linux and root's rights.", run)
}

// run calls soak.RunPartitions. If the machine cannot create the simulated hosts, run prints the
// reason and returns nil.
func run(ctx context.Context, c soak.PartitionsConfig) error {
	err := soak.RunPartitions(ctx, c)
	if errors.Is(err, errors.ErrUnsupported) {
		_, _ = fmt.Fprintln(os.Stdout, "skipped:", err)
		return nil
	}
	return err
}
