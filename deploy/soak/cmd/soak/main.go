// Command soak runs hookstart in a production-like setup under load and faults. It prints a ledger
// that compares the responses to senders with what was stored.
package main

import (
	"github.com/hookstart/hookstart/deploy/soak"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	if soak.RunAsRole() {
		return
	}
	program.Main("soak", "hookstart in the production shape, under load and faults; then a ledger.",
		soak.Run)
}
