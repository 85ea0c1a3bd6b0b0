package pgtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// clockTick is the unit of the CPU times in /proc/PID/stat. It is the same on all common Linux
// systems.
const clockTick = 10 * time.Millisecond

// CPU returns the CPU time that the server's processes have used so far, including processes that
// have exited. It returns 0 if the machine has no /proc.
func (s *Server) CPU() time.Duration {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	server := strconv.Itoa(s.process.PID())
	ticks := 0
	for _, name := range files {
		stat, err := os.ReadFile(name) //nolint:gosec // of the kernel
		if err != nil {
			continue // the process has ended
		}
		// The fields begin after the last parenthesis: the name of the program, in parentheses, may
		// contain spaces. See proc_pid_stat(5).
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		const parent, userTime, systemTime, endedUserTime, endedSystemTime = 1, 11, 12, 13, 14
		used := []int{userTime, systemTime}
		switch {
		case filepath.Base(filepath.Dir(name)) == server:
			used = append(used, endedUserTime, endedSystemTime)
		case string(fields[parent]) != server:
			continue
		}
		for _, field := range used {
			n, _ := strconv.Atoi(string(fields[field]))
			ticks += n
		}
	}
	return time.Duration(ticks) * clockTick
}
