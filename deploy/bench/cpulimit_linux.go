package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// cpuPeriod is the period of the CPU quota. A process that has used its quota pauses until the
// period ends, so a short period keeps the pauses short.
const cpuPeriod = 10 * time.Millisecond

// cpuLimit is a control group that limits the CPU of its processes.
type cpuLimit struct{ cgroupFolder string }

// limitCPU creates a control group with a limit of the given number of cores, and moves the process
// pid into it. It needs root privileges and the cpu controller of control groups, version 1 or 2.
// The caller must call remove after the process has ended.
func limitCPU(pid int, cores float64) (cpuLimit, error) {
	name := "hookstart-bench-" + strconv.Itoa(pid)
	quota := strconv.FormatInt(int64(cores*float64(cpuPeriod.Microseconds())), 10)
	period := strconv.FormatInt(cpuPeriod.Microseconds(), 10)
	folder, settings := filepath.Join("/sys/fs/cgroup/cpu", name), [][2]string{
		{"cpu.cfs_period_us", period}, {"cpu.cfs_quota_us", quota},
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		folder, settings = filepath.Join("/sys/fs/cgroup", name), [][2]string{
			{"cpu.max", quota + " " + period},
		}
	}
	bound := cpuLimit{folder}
	if err := os.Mkdir(folder, 0o755); err != nil { //nolint:gosec // the kernel sets the modes
		return cpuLimit{}, fmt.Errorf("bound the CPU of a process: %w; run as root, where the "+
			"controller \"cpu\" of control groups is mounted", err)
	}
	settings = append(settings, [2]string{"cgroup.procs", strconv.Itoa(pid)})
	for _, set := range settings {
		//nolint:gosec // the kernel has made the files
		if err := os.WriteFile(filepath.Join(folder, set[0]), []byte(set[1]), 0o644); err != nil {
			return cpuLimit{}, errors.Join(
				fmt.Errorf("bound the CPU of a process: %w", err), bound.remove())
		}
	}
	return bound, nil
}

// remove deletes the control group. Its processes must have ended.
func (b cpuLimit) remove() error { return os.Remove(b.cgroupFolder) }
