package soak

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// maxRedeliveryDelay is the longest time after the end of an execution in which a runner may
// receive the execution again because the acknowledgement was lost. The consumer redelivers after
// its acknowledgement timeout, which is at most 15 s: the value is twice that, plus the longest
// time for which a service is unavailable.
const maxRedeliveryDelay = time.Minute

// executionRun is one delivery of an execution to a runner.
type executionRun struct {
	id         string
	receivedAt time.Time
}

// rerunsAfterEnd describes the executions that a runner received more than maxRedeliveryDelay after
// their end. By then, a lost acknowledgement can no longer be the reason, so the redelivery is a
// fault. ended maps execution IDs to the times of their ends.
func (i *installation) rerunsAfterEnd(ended map[string]time.Time) (again []string, err error) {
	for _, r := range i.runners {
		runs, err := readRuns(r.runsFile)
		if err != nil {
			return nil, err
		}
		for _, next := range runs {
			if end, ok := ended[next.id]; ok && next.receivedAt.Sub(end) > maxRedeliveryDelay {
				again = append(again,
					fmt.Sprintf("%s by %s, %s after its end", next.id, r.name,
						next.receivedAt.Sub(end).Round(time.Second)))
			}
		}
	}
	return again, nil
}

// receivedExecutionIDs returns the IDs of the executions that the installation's runners received.
func (i *installation) receivedExecutionIDs() (map[string]bool, error) {
	all := map[string]bool{}
	for _, r := range i.runners {
		runs, err := readRuns(r.runsFile)
		if err != nil {
			return nil, err
		}
		for _, run := range runs {
			all[run.id] = true
		}
	}
	return all, nil
}

// readRuns reads the file to which a runner has written the executions that it received. A missing
// file means that the runner received none.
func readRuns(path string) ([]executionRun, error) {
	file, err := os.Open(path) //nolint:gosec // the soak's own
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var runs []executionRun
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var nanos int64
		var r executionRun
		if _, err := fmt.Sscan(lines.Text(), &nanos, &r.id); err != nil {
			continue // the runner was killed while it wrote the last line
		}
		r.receivedAt = time.Unix(0, nanos)
		runs = append(runs, r)
	}
	return runs, lines.Err()
}
