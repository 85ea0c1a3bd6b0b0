package soak

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/pgtest"
)

// One of two executors is frozen while it holds start messages that it has not acknowledged.
// Meanwhile, the executions table is locked longer than the timeouts of the other executor, and
// runners keep sending reports. Afterwards, every execution is recorded with its final status.
func TestFrozenAndLocked(t *testing.T) {
	t.Parallel()
	database := pgtest.StartServer(t)
	i := set(t, installConfig{nodes: 1, ingresses: 1, executors: 2, runners: 1, database: database})
	f := newFaultInjector(i, database, nil, 1, time.Second, t.Logf)
	s := newSenders(newLedger(), i, "test")

	starting, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { s.sendLoad(t.Context(), starting, 20, 20, 1) })
	err := f.freezeExecutor(t.Context(), i.executors[0], false, func() error {
		return f.lockExecutionsTable(t.Context(), lockModes[0], true, 7*time.Second)
	})
	stop()
	all.Wait()
	if err != nil {
		t.Fatal(err)
	}

	if err := awaitConsumersCaughtUp(t.Context(), i.js, recordTimeout); err != nil {
		t.Fatal(err)
	}
	streams, err := readStreams(t.Context(), i.js)
	if err != nil {
		t.Fatal(err)
	}
	records, err := readRecords(t.Context(), i.client())
	if err != nil {
		t.Fatal(err)
	}
	aside, err := deadLetteredStarts(t.Context(), i.client())
	if err != nil {
		t.Fatal(err)
	}
	r := &report{audit: auditLedger(s.ledger, streams, records, nil), deadLetteredStarts: aside}
	r.write(t.Output())
	if err := r.violationsErr(); err != nil {
		t.Error(err)
	}
	if len(streams.starts) < 50 || len(streams.finalStatuses) < 50 {
		t.Errorf("%d executions, %d ended: too few to show anything", len(streams.starts),
			len(streams.finalStatuses))
	}
}
