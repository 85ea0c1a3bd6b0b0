// Command regions measures an installation in three zones with latency between them, and cuts off
// one of the zones under load.
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
	program.Main("regions",
		"Three zones in network namespaces, with latency between them: what a 200 costs, and what "+
			"happens while a zone is cut off. It needs Linux and root's rights.", run)
}

// run calls soak.RunRegions. If the machine cannot create the simulated hosts, run prints the
// reason and returns nil.
func run(ctx context.Context, c soak.RegionsConfig) error {
	err := soak.RunRegions(ctx, c)
	if errors.Is(err, errors.ErrUnsupported) {
		_, _ = fmt.Fprintln(os.Stdout, "skipped:", err)
		return nil
	}
	return err
}
