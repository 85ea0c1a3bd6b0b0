package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// Parameters of Fill. Its records are one second apart and belong to a hundred workflows in turn.
// Each record has a different delivery ID. One record in a hundred has failed, and the others have
// succeeded, so even the smallest fill has at least 50 failed records to list.
const (
	fillWorkflowCount    = 100
	fillFailureInterval  = 100
	fillDeliveryIDPrefix = "delivery-" // followed by the number of the record, starting at 1
)

const batchSize = 500

// nthFilledRecord returns the n-th record that Fill adds.
func nthFilledRecord(n int) store.Record {
	r := nthRecord(n)
	r.WorkflowID, r.DeliveryID = fmt.Sprint("workflow-", n%fillWorkflowCount),
		fmt.Sprint(fillDeliveryIDPrefix, n)
	r.ID = execution.IDForDelivery(r.WorkflowID, r.NodeID, r.DeliveryID)
	r.Status, r.FinishedAt = execution.Succeeded, r.AcceptedAt.Add(time.Second)
	if n%fillFailureInterval == 0 {
		r.Status, r.Error = execution.Failed, "an error"
	}
	return r
}

// Fill adds n records to a store.
func Fill(ctx context.Context, s store.Store, n int) error {
	for first := 1; first <= n; first += 5_000 {
		var batch store.Batch
		for i := first; i < first+5_000 && i <= n; i++ {
			batch.NewRecords = append(batch.NewRecords, nthFilledRecord(i))
		}
		if _, err := s.Apply(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// The accounts whose records AddAccountRecords adds. Each name says which workflows or nodes the
// account's records belong to.
const (
	AccountOneWorkflow   = "of one workflow"
	AccountTwoWorkflows  = "of two workflows"
	AccountMovedWorkflow = "of a workflow that moved"
	AccountManyNodes     = "of many nodes"
)

// AddAccountRecords adds the records of four accounts to a store that Fill has filled, and returns
// them, oldest first. Some are older than the records of Fill. The others are newer: one for each
// of 1,001 trigger nodes, which is one more than the number of origins that a query lists
// individually.
func AddAccountRecords(ctx context.Context, s store.Store) ([]store.Record, error) {
	var all []store.Record
	add := func(year int, account, workflow, node string) {
		n := len(all)
		r := nthRecord(n)
		r.AccountID, r.WorkflowID, r.NodeID, r.DeliveryID, r.AcceptedAt = account, workflow, node,
			fmt.Sprint("of an account ", n), r.AcceptedAt.AddDate(year, 0, 0)
		r.ID = execution.IDForDelivery(workflow, node, r.DeliveryID)
		if n%7 == 6 {
			r.Source = execution.SourceRerun
		}
		all = append(all, r)
	}
	for range 10 {
		add(-1, AccountOneWorkflow, "alone", "node")
		add(-1, AccountTwoWorkflows, "first", "node")
		add(-1, AccountTwoWorkflows, "second", "node")
		add(-1, AccountMovedWorkflow, "third", "node")
		add(-1, AccountMovedWorkflow, "moved", "node")
	}
	for i := range 1_001 {
		add(1, AccountManyNodes, []string{"large", "moved"}[i%2], fmt.Sprint("node-", i))
	}
	_, err := s.Apply(ctx, store.Batch{NewRecords: all})
	return all, err
}

// BenchmarkListNewest lists the newest 50 records of a store that has ten thousand records, and of
// a store that has a million. Both should take the same time. With -short, it skips the million
// records.
func BenchmarkListNewest(b *testing.B, open func(b *testing.B) store.Store) {
	b.Helper()
	for _, size := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint("records=", size), func(b *testing.B) {
			if size > 100_000 && testing.Short() {
				b.Skip("filling takes a while")
			}
			s := open(b)
			if err := Fill(b.Context(), s, size); err != nil {
				b.Fatal(err)
			}
			for _, c := range []struct {
				name   string
				filter store.RecordFilter
				want   int
			}{
				{"all", store.RecordFilter{}, 50},
				{
					"workflow",
					store.RecordFilter{WorkflowID: "workflow-7"},
					min(50, size/fillWorkflowCount),
				},
				{"delivery", store.RecordFilter{DeliveryID: fillDeliveryIDPrefix + "77"}, 1},
				{
					"failed",
					store.RecordFilter{Status: execution.Failed},
					min(50, size/fillFailureInterval),
				},
				{"none rerun", store.RecordFilter{Source: execution.SourceRerun}, 0},
			} {
				b.Run(c.name, func(b *testing.B) {
					for b.Loop() {
						records, err := s.List(b.Context(), c.filter, store.RecordPosition{}, 50)
						if err != nil || len(records) != c.want {
							b.Fatalf("%d records, want %d, %v", len(records), c.want, err)
						}
					}
				})
			}
			b.Run("get", func(b *testing.B) {
				for n := 1; b.Loop(); n++ {
					if _, err := s.Get(b.Context(), nthFilledRecord(n*7919%size+1).ID); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("count of a day", func(b *testing.B) {
				since := nthFilledRecord(size).AcceptedAt.Add(-24 * time.Hour)
				for b.Loop() {
					if _, err := s.CountByTime(b.Context(), store.RecordFilter{
						WorkflowID: "workflow-7",
						Since:      since,
					}, time.Hour); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// ApplyTarget is the store that BenchmarkApply measures.
type ApplyTarget struct {
	Store store.Store
	// InsertBare inserts records, in one transaction, into a table with the same columns but
	// without keys or indexes, for comparison.
	InsertBare func(ctx context.Context, records []store.Record) error
	// ServerCPU returns the CPU time that the database server has used so far. nil means that the
	// database is part of this process.
	ServerCPU func() time.Duration
}

// cpuMeter adds up the CPU time that this process and the database server use between start and
// stop. The zero value is ready for use.
type cpuMeter struct {
	process, server time.Duration
}

// start begins a measurement, and stop ends it. Reading the server's CPU time is expensive, because
// it opens a file for each process of the machine. So start and stop read it at a moment at which
// this process's CPU time is not being measured.
func (m *cpuMeter) start(t ApplyTarget) {
	m.server -= t.serverCPU()
	m.process -= processCPU()
}

func (m *cpuMeter) stop(t ApplyTarget) {
	m.process += processCPU()
	m.server += t.serverCPU()
}

// serverCPU returns the CPU time that the database server has used so far, or 0 if the database is
// part of this process.
func (t ApplyTarget) serverCPU() time.Duration {
	if t.ServerCPU == nil {
		return 0
	}
	return t.ServerCPU()
}

// report adds the CPU time per unit of work to the benchmark's metrics. n is the number of units.
func (m *cpuMeter) report(b *testing.B, unit string, n int) {
	b.Helper()
	b.ReportMetric(m.process.Seconds()*1e6/float64(n), "cpu-µs/"+unit)
	if m.server > 0 {
		b.ReportMetric(m.server.Seconds()*1e6/float64(n), "server-cpu-µs/"+unit)
	}
}

// BenchmarkApply measures how long Apply takes for a batch of 500 records. For comparison, it also
// passes the same records to InsertBare, which inserts them into a table without keys or indexes.
// The metric x-bare is the time of Apply divided by the time of InsertBare. The other metrics are
// the CPU time of Apply in this process and in the database server.
func BenchmarkApply(b *testing.B, open func(b *testing.B) ApplyTarget) {
	b.Helper()
	b.Run("starts", func(b *testing.B) {
		target := open(b)
		var applying, inserting time.Duration
		var used cpuMeter
		batches := 0
		for b.Loop() {
			records := batchWithScatteredIDs(batches)
			batch := store.Batch{NewRecords: records}
			batches++
			b.StopTimer()
			used.start(target)
			b.StartTimer()
			start := time.Now()
			if _, err := target.Store.Apply(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			applying += time.Since(start)
			b.StopTimer()
			used.stop(target)
			start = time.Now()
			if err := target.InsertBare(b.Context(), records); err != nil {
				b.Fatal(err)
			}
			inserting += time.Since(start)
			b.StartTimer()
		}
		b.ReportMetric(float64(batches*batchSize)/applying.Seconds(), "starts/s")
		b.ReportMetric(float64(applying)/float64(inserting), "x-bare")
		used.report(b, "start", batches*batchSize)
	})
	b.Run("lives", func(b *testing.B) {
		// The first batch records executions, the second one reports that these executions are
		// running, and the third one reports that they have succeeded.
		target := open(b)
		var used cpuMeter
		batches := 0
		for b.Loop() {
			records := batchWithScatteredIDs(batches)
			batches++
			var begin, end store.Batch
			for _, r := range records {
				begin.Progress = append(begin.Progress, withQueueAndWorkflowOf(r,
					execution.Progress{
						ID:     r.ID,
						Status: execution.Running,
						At:     epoch,
					}))
				end.Progress = append(end.Progress, withQueueAndWorkflowOf(r, execution.Progress{
					ID:     r.ID,
					Status: execution.Succeeded,
					At:     epoch,
					Output: []byte(`{"ok":true}`),
				}))
			}
			b.StopTimer()
			used.start(target)
			b.StartTimer()
			for _, batch := range []store.Batch{{NewRecords: records}, begin, end} {
				if _, err := target.Store.Apply(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			used.stop(target)
			b.StartTimer()
		}
		used.report(b, "life", batches*batchSize)
		b.ReportMetric(float64(batches*batchSize)/b.Elapsed().Seconds(), "lives/s")
	})
}

// batchWithScatteredIDs returns the records of the batch with the given number. As in production,
// their IDs are hashes, so that consecutive records are far apart in the index of IDs.
func batchWithScatteredIDs(batch int) []store.Record {
	records := make([]store.Record, batchSize)
	for i := range records {
		n := batch*batchSize + i
		records[i] = nthRecord(n)
		records[i].WorkflowID = fmt.Sprint("workflow-", n%fillWorkflowCount)
		records[i].TokenID = fmt.Sprint("token-", n%fillWorkflowCount)
		records[i].ID = execution.IDForDelivery(records[i].WorkflowID, "node",
			records[i].DeliveryID)
	}
	return records
}
