// Command hookstart-local runs all of hookstart in one process.
package main

import (
	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	program.Main("hookstart-local",
		"All of hookstart in one process, on an embedded NATS server and SQLite.", local.Run)
}
