//go:build !unix

package storetest

import "time"

// processCPU returns 0, because the CPU time cannot be determined on this system.
func processCPU() time.Duration { return 0 }
