//go:build !unix

package storetest

import "time"

// processCPU returns 0, because the CPU time is not known.
func processCPU() time.Duration { return 0 }
