// Command soak runs hookstart in the production shape under load and faults. It prints the answers
// that senders got, and their effects.
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
