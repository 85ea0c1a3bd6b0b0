package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
)

// children returns the states of parent's child processes, keyed by process ID. A state is a letter
// as in /proc/PID/stat, such as Z for a zombie.
func children(parent int) map[int]string {
	found := map[int]string{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has exited
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			found[pid] = fields[0]
		}
	}
	return found
}

// If hookstart run is the first process of a container, processes that its programs leave behind do
// not remain as zombies. A signal that stops hookstart run ends the container with exit code 0.
func TestRunAsTheFirstProcess(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "--pid", "--fork", "true").Run(); err != nil {
		t.Skipf("no namespace of processes can be made here: %v", err)
	}
	i := install(t, 1)
	path := makeWorkflow(t, i.client, "orders")
	leaves := filepath.Join(t.TempDir(), "leaves.sh")
	if err := os.WriteFile(leaves,
		[]byte("#!/bin/sh\n( setsid sh -c 'exit 0' & )\n( setsid sh -c 'exit 1' & )\necho done\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "unshare", "--pid", "--fork", "--kill-child",
		filepath.Join(buildCommandLine(t), "hookstart"),
		"run", "--queue=default", "--group=main", "--nats-url="+i.nats.URL(), "--", leaves)
	p.Await(`(runner is ready)`)
	for n := range 20 {
		a, err := post(t.Context(), i.urls[0]+path, nil, strings.NewReader(fmt.Sprint(n)))
		if err != nil || a.Status != 200 {
			t.Fatalf("%+v, %v", a, err)
		}
		recorded(t, i.client, a.ExecutionID, func(e api.ExecutionDetail) bool {
			return e.Status == "succeeded"
		})
	}
	first := 0
	for pid := range children(p.PID()) {
		first = pid
	}
	if first == 0 {
		t.Fatal("there is no first process")
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(time.Minute)
	for {
		zombies := 0
		for _, state := range children(first) {
			if state == "Z" {
				zombies++
			}
		}
		if zombies == 0 {
			break
		}
		select {
		case <-end:
			t.Fatalf("%d zombies", zombies)
		case <-tick.C:
		}
	}
	stop, err := os.FindProcess(first)
	if err == nil {
		err = stop.Signal(os.Interrupt)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.AwaitExit()
}
