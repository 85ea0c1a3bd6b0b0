// Command release prepares a release of the modules in the current checkout. It pushes nothing. For
// instance:
//
//	release v0.1.0 make dist
//
// The arguments after the version are a command that builds the files of the release in a folder
// where the release commit is checked out. If this command fails, there is no release.
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
