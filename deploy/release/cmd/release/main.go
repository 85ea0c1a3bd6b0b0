// Command release prepares a release of the modules, in the checkout in which it is started:
// release v0.1.0 make dist. It pushes nothing. What follows the version is a command that makes the
// files of the release: it runs where the release is checked out, and nothing is released if it
// fails.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hookstart/hookstart/deploy/release"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr,
			"usage: release VERSION [COMMAND...], such as release v0.1.0 make dist")
		os.Exit(2)
	}
	err := release.Prepare(context.Background(), ".", os.Args[1], os.Args[2:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
