// Package report counts suppressed repeats and tells the executors, a few times a
// second, in batches.
package report

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/stream"
)

// interval is how often counts are sent.
const interval = 200 * time.Millisecond

// maxExecutions bounds the memory: repeats of further executions are not counted
// until a report has been sent.
const maxExecutions = 10_000

// Duplicates counts repeats by execution. It is safe for concurrent use.
type Duplicates struct {
	js  jetstream.JetStream
	log logrus.FieldLogger

	mu     sync.Mutex
	counts map[string]int64

	pending *nats.Msg // a report that is not confirmed yet; sent again as it is, it counts once
	stop    chan struct{}
	done    chan struct{}
}

// NewDuplicates starts to report over nc.
func NewDuplicates(js jetstream.JetStream, log logrus.FieldLogger) *Duplicates {
	d := &Duplicates{js: js, log: log, counts: map[string]int64{}, stop: make(chan struct{}), done: make(chan struct{})}
	go d.run()
	return d
}

// Count counts one suppressed repeat.
func (d *Duplicates) Count(executionID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.counts[executionID]; known || len(d.counts) < maxExecutions {
		d.counts[executionID]++
	}
}

// Stop sends what is counted, if the stream takes it, and ends.
func (d *Duplicates) Stop() {
	close(d.stop)
	<-d.done
}

func (d *Duplicates) run() {
	defer close(d.done)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.send()
		case <-d.stop:
			d.send()
			return
		}
	}
}

// take takes what is counted. An empty map stays where it is; nil is returned for it.
func (d *Duplicates) take() map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.counts) == 0 {
		return nil
	}
	counts := d.counts
	d.counts = map[string]int64{}
	return counts
}

func (d *Duplicates) send() {
	if d.pending == nil {
		counts := d.take()
		if len(counts) == 0 {
			return
		}
		msg, err := stream.DuplicatesMessage(uuid.NewString(), time.Now(), counts)
		if err != nil {
			d.log.WithError(err).Error("a report of suppressed repeats cannot be encoded")
			return
		}
		d.pending = msg
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := d.js.PublishMsg(ctx, d.pending); err != nil {
		d.log.WithError(err).Debug("a report of suppressed repeats was not taken; it is sent again")
		return
	}
	d.pending = nil
}
