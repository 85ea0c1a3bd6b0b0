// Command regions measures three zones with latency between them, and cuts one of them off under
// load.
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

// run ends without an error if the machine cannot make hosts, and prints why.
func run(ctx context.Context, c soak.Regions) error {
	err := soak.RunRegions(ctx, c)
	if errors.Is(err, errors.ErrUnsupported) {
		_, _ = fmt.Fprintln(os.Stdout, "skipped:", err)
		return nil
	}
	return err
}
