// Command release prepares a release of the modules, in the checkout in which it is started:
// release v0.1.0. It pushes nothing.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hookstart/hookstart/deploy/release"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: release VERSION, such as v0.1.0")
		os.Exit(2)
	}
	if err := release.Prepare(context.Background(), ".", os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
