package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// residentMB returns the resident memory of a process in MB.
func residentMB(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.Atoi(fields[1])
	return pages * os.Getpagesize() >> 20, err
}
