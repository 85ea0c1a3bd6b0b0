//go:build linux

// Command powercut simulates power cuts of hookstart-local, or of a cluster with three NATS
// servers, while they are under load. Their data is on file systems that can lose unsynced data in
// a power cut. The command prints what was lost.
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
