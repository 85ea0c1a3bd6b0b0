//go:build linux

// Command powercut simulates power failures of hookstart-local, or of three NATS servers, under
// load, on file systems that discard everything that was not synced, and prints what was lost.
package main

import (
	"github.com/hookstart/hookstart/deploy/powercut"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	if powercut.RunAsRole() {
		return
	}
	program.Main("powercut",
		"Cuts the power of hookstart-local or NATS servers under load, and prints what was lost.",
		powercut.Run)
}
