package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// Limits for the age of the state that the database is rolled back to.
const (
	shortestRollback = 2 * time.Second
	longestRollback  = 15 * time.Second
)

// maxUnreportedAcks is the maximum number of executions that a simulated faulty runner acknowledges
// without a readable report.
const maxUnreportedAcks = 10

// unreportedEndTimeout is how long executors may take to find and end the executions that were
// acknowledged without a readable report. When an executor searches for them, it skips each queue's
// own stream that is not completely recorded yet, and searches again a minute later.
const unreportedEndTimeout = 5 * time.Minute

// unreadableReport is the data of a message that cannot be decoded as a report.
const unreadableReport = "\xff this is no report"

// addDataLossFaults adds the faults that lose data: the database loses its latest transactions, the
// registry is deleted, or a runner acknowledges executions without sending readable reports.
func (f *faultInjector) addDataLossFaults(add addFaultFunc) {
	target := []string{"database"}
	add("failover of database to a standby that lags", target, shortestRollback, longestRollback,
		f.rollBackDatabase(true))
	add("database put back from a copy", target, shortestRollback, longestRollback,
		f.rollBackDatabase(false))
	for _, queue := range f.installation.queues() {
		add("reports that are missing or unreadable", []string{"noise"}, 0, time.Second,
			func(ctx context.Context, _ time.Duration) error {
				return f.injectUnreportedAcks(ctx, queue)
			})
	}
	add("deleted registry", []string{"nodes"}, 0, time.Second, f.deleteRegistry)
}

// rollBackDatabase returns an injection that makes the database lose its latest transactions. If
// promoteStandby is true, it fails over to a standby that lags behind; otherwise it restores a
// backup.
func (f *faultInjector) rollBackDatabase(promoteStandby bool) injectFunc {
	return func(ctx context.Context, lasts time.Duration) error {
		if err := f.database.BaseBackup(ctx); err != nil {
			return err
		}
		retry.Sleep(ctx, lasts)
		ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
		defer cancel()
		return f.database.RestoreBaseBackup(ctx, promoteStandby)
	}
}

// injectUnreportedAcks acts as a faulty runner of the given queue. It acknowledges executions
// without running them: it sends an unreadable report about every other one, and no report about
// the rest.
func (f *faultInjector) injectUnreportedAcks(ctx context.Context, queue string) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	group := stream.RunnerGroup{Queue: queue, Group: runnerGroup}
	name := f.installation.layout(queue).StreamName(queue)
	return eventually(ctx, recoverTimeout, func(ctx context.Context) error {
		consumer, err := f.installation.js.Consumer(ctx, name, group.ConsumerName())
		if err != nil {
			return err
		}
		batch, err := consumer.Fetch(maxUnreportedAcks, jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			return err
		}
		taken := 0
		for msg := range batch.Messages() {
			if err := f.ackWithoutValidReport(ctx, msg, taken%2 == 0); err != nil {
				return err
			}
			taken++
		}
		if taken == 0 {
			return errors.New("the runner that sends no reports was given nothing")
		}
		return batch.Error()
	})
}

// ackWithoutValidReport acknowledges msg, the start message of an execution. If withReport is true,
// it first publishes a report that cannot be decoded; otherwise it publishes none.
func (f *faultInjector) ackWithoutValidReport(
	ctx context.Context,
	msg jetstream.Msg,
	withReport bool,
) error {
	event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
	if err != nil {
		return err
	}
	start := event.Start
	// Record the acknowledgement first, because it may take effect even if DoubleAck returns an
	// error.
	f.mu.Lock()
	f.unreportedAcks[start.ID] = time.Now()
	f.mu.Unlock()
	if withReport {
		subject := f.installation.layout(start.Queue).ProgressSubject(start.Queue, start.WorkflowID,
			start.ID)
		if _, err := f.installation.js.Publish(ctx, subject, []byte(unreadableReport)); err != nil {
			return err
		}
	}
	return msg.DoubleAck(ctx)
}

// unreportedAckTimes returns a copy of unreportedAcks.
func (f *faultInjector) unreportedAckTimes() map[string]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.unreportedAcks)
}

// awaitUnreportedExecutionsEnd waits until executors have found all executions that were
// acknowledged without a readable report, and have given each a final status. It restarts the
// executors first, because an executor searches for such executions when it starts and only rarely
// after that.
func (f *faultInjector) awaitUnreportedExecutionsEnd(ctx context.Context) error {
	unreported := f.unreportedAckTimes()
	if len(unreported) == 0 {
		return nil
	}
	if err := rollingRestart(f.installation.executors)(ctx, 0); err != nil {
		return err
	}
	return eventually(ctx, unreportedEndTimeout, func(ctx context.Context) error {
		records, err := readRecords(ctx, f.installation.client())
		if err != nil {
			return err
		}
		waiting := 0
		for id := range unreported {
			if r, ok := records[id]; ok && !r.status.Final() {
				waiting++
			}
		}
		if waiting > 0 {
			return fmt.Errorf(
				"%d executions that were acknowledged without a report have not ended", waiting)
		}
		return nil
	})
}

// deleteRegistry deletes the registry's bucket, and waits until all services are ready again.
func (f *faultInjector) deleteRegistry(ctx context.Context, _ time.Duration) error {
	if err := f.installation.js.DeleteStream(ctx, registry.Stream); err != nil {
		return err
	}
	began := time.Now()
	if err := f.installation.awaitReady(ctx, recoverTimeout); err != nil {
		return err
	}
	f.logf("the deleted registry was back after %s", time.Since(began).Round(time.Millisecond))
	return nil
}

// deleteStoresAndCheck deletes the stores of all nodes. It then checks the following promises, and
// returns a description of each violation:
//
//   - Until the registry is restored, an ingress may answer a request to an active workflow with a
//     5xx, but never with a permanent refusal.
//   - Afterwards, the same webhook URLs work, and the deactivated workflow is still deactivated.
//   - Queues that had their own stream have one again.
//   - The records still exist, and executions accepted afterwards are recorded and reach a final
//     state.
func (i *installation) deleteStoresAndCheck(
	ctx context.Context, s *senders, out io.Writer,
) (broken []string, err error) {
	if err := setToggledWorkflowActive(ctx, i.client(), false); err != nil {
		return nil, err
	}
	before, err := readRecords(ctx, i.client())
	if err != nil {
		return nil, err
	}
	for _, n := range i.nodes {
		n.kill()
	}
	for _, n := range i.nodes {
		if err := errors.Join(os.RemoveAll(n.storeDir), n.start()); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	complaints := map[string]int{}
	back := eventually(ctx, convergenceTimeout, func(ctx context.Context) error {
		var errs []error
		for _, e := range i.ingresses {
			for _, path := range s.webhookPathPerQueue {
				a, err := s.sendRequest(ctx, &delivery{marker: "lost"}, e.url+path)
				switch {
				case err != nil: // no response, which is not a refusal
				case a.Status == http.StatusOK:
					continue
				case a.Status < http.StatusInternalServerError:
					complaints[fmt.Sprintf("%s answered %d %s while the store was lost", e.name,
						a.Status, a.Code)]++
					err = fmt.Errorf("%d %s", a.Status, a.Code)
				default:
					err = errors.New(a.Code)
				}
				errs = append(errs, fmt.Errorf("%s: %w", e.name, err))
			}
		}
		return errors.Join(errs...)
	})
	for text, count := range complaints {
		broken = append(broken, fmt.Sprintf("%s, %d times", text, count))
	}
	if back != nil {
		//nolint:nilerr // a finding, not a failure of the tool
		return append(broken, "the same URLs: "+back.Error()), nil
	}
	_, _ = fmt.Fprintf(out, "the same URLs work at every ingress after %s\n",
		time.Since(began).Round(time.Millisecond))
	check := func(what string, hold func(context.Context) error) {
		if err := eventually(ctx, convergenceTimeout, hold); err != nil && ctx.Err() == nil {
			broken = append(broken, what+": "+err.Error())
		}
	}
	check("all are well", i.awaitReplicasAndReady)
	check("streams of queues", i.checkOwnStreams)
	check("a workflow that was deactivated", func(ctx context.Context) error {
		return i.checkWorkflowEverywhere(ctx, s, toggledWorkflowID, i.toggledWebhookPath,
			http.StatusForbidden)
	})
	accepted := s.deliverBatch(ctx, "emptied")
	if err := awaitConsumersCaughtUp(ctx, i.js, recordTimeout); err != nil {
		broken = append(broken, err.Error())
	}
	check("records", func(ctx context.Context) error {
		after, err := readRecords(ctx, i.client())
		if err != nil {
			return err
		}
		for id, r := range before {
			if now := after[id]; now.count != 1 || r.status.Final() && now.status != r.status {
				return fmt.Errorf("%s was %s and is recorded %d times, as %s", id, r.status,
					now.count, now.status)
			}
		}
		return i.checkRecords(ctx, accepted)
	})
	return broken, nil
}
