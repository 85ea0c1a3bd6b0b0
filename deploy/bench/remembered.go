package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// DeliveryIDCost measures what it costs a NATS server to remember delivery IDs. It publishes the
// same messages directly to the stream, with and without an ID. The struct tags define the
// program's flags.
type DeliveryIDCost struct {
	Messages  int `help:"How many there are." default:"1000000"`
	BodyBytes int `help:"Size of a body, JSON." default:"256"`
	Restarts  int `help:"How often the server is started again, of each kind." default:"3"`

	// Out receives the progress and the table. Required.
	Out io.Writer `kong:"-"`
}

func (c *DeliveryIDCost) validate() error {
	return errors.Join(
		checkRange("messages", float64(c.Messages), 1, 10_000_000),
		checkRange("body-bytes", float64(c.BodyBytes), minBodyBytes, maxBodyBytes),
		checkRange("restarts", float64(c.Restarts), 1, maxRounds))
}

// storageCost holds the memory and the times measured for a server that stores the messages.
type storageCost struct {
	// resident is the resident memory in MB once all messages are stored. inUse is the resident
	// memory in MB after a garbage collection.
	resident, inUse                              int
	inUseAfterRestart                            int // memory in MB in use after the last restart
	startSecondsAfterStop, startSecondsAfterKill []float64
}

// Run makes the measurement and writes its table to c.Out.
func (c *DeliveryIDCost) Run(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return err
	}
	rows := map[bool]storageCost{}
	for _, withID := range []bool{false, true} {
		k, err := c.measure(ctx, withID)
		if err != nil {
			return err
		}
		rows[withID] = k
	}
	writeTable(c.Out,
		fmt.Sprintf("A NATS server with %d messages of %d bytes of body. Median of %d restarts "+
			"(quartiles).", c.Messages, c.BodyBytes, c.Restarts),
		"delivery IDs\tMB resident\tMB in use\tin use after a restart\tseconds until the stream "+
			"answers, after SIGTERM\tafter kill -9", func(w io.Writer) {
			for _, withID := range []bool{false, true} {
				k, name := rows[withID], "none"
				if withID {
					name = fmt.Sprint(c.Messages)
				}
				_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\n", name, k.resident, k.inUse,
					k.inUseAfterRestart,
					quartilesOf(k.startSecondsAfterStop).format("%.2f"),
					quartilesOf(k.startSecondsAfterKill).format("%.2f"))
			}
		})
	_, _ = fmt.Fprintf(c.Out, "\nA delivery ID takes %d bytes, %d after a restart.\n",
		(rows[true].inUse-rows[false].inUse)<<20/c.Messages,
		(rows[true].inUseAfterRestart-rows[false].inUseAfterRestart)<<20/c.Messages)
	return nil
}

func (c *DeliveryIDCost) measure(ctx context.Context, withID bool) (k storageCost, err error) {
	at, err := newWorkspace(c.Out)
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	b := &launcher{folder: at.folder, name: "remembered"}
	start := func(ctx context.Context, b *launcher) (*system, error) {
		s := &system{name: b.name}
		_, err := s.startNATS(ctx, b)
		return s, err
	}
	s, err := at.startSystem(ctx, start, b)
	if err != nil {
		return k, err
	}
	if err := stream.EnsureSharedStreams(ctx, s.js, stream.DefaultSettings); err != nil {
		return k, err
	}
	at.progress.Show("publishing %d messages", c.Messages)
	if err := c.publishMessages(ctx, s, withID); err != nil {
		return k, err
	}
	if k.resident, err = residentMB(s.nats.PID()); err != nil {
		return k, err
	}
	if k.inUse, err = s.nats.residentAfterGC(ctx); err != nil {
		return k, err
	}
	for n := range 2 * c.Restarts {
		end, took := (*process).stop, &k.startSecondsAfterStop
		if n%2 == 1 {
			end, took = (*process).Kill, &k.startSecondsAfterKill
		}
		at.progress.Show("restart %d of %d", n+1, 2*c.Restarts)
		end(s.nats)
		s.close()
		at.systems = nil
		if err := os.Truncate(s.nats.logFile, 0); err != nil {
			// The new server must begin with an empty log. Otherwise the ready line of the previous
			// server would be mistaken for the new server's.
			return k, err
		}
		began := time.Now()
		if s, err = at.startSystem(ctx, start, b); err != nil {
			return k, err
		}
		if err := c.verifyStream(ctx, s, withID); err != nil {
			return k, err
		}
		*took = append(*took, time.Since(began).Seconds())
	}
	k.inUseAfterRestart, err = s.nats.residentAfterGC(ctx)
	return k, err
}

// startMessage returns the nth start message, as an ingress would publish it. If withID is true, it
// has a delivery ID.
func (c *DeliveryIDCost) startMessage(n int, withID bool) execution.Start {
	start := execution.Start{
		ID:         uuid.NewString(),
		WorkflowID: workflowID(0),
		NodeID:     nodeID,
		AccountID:  "bench",
		Queue:      "default",
		Source:     execution.SourceWebhook,
		AcceptedAt: time.Now(),
		TokenID:    "0123456789abcdef",
		Headers:    execution.Values{"User-Agent": {"bench"}, "Content-Type": {"application/json"}},
		Payload: execution.Payload{
			ContentType: "application/json",
			Kind:        execution.BodyJSON,
			Body:        []byte(jsonBody(c.BodyBytes)),
		},
	}
	if withID {
		start.DeliveryID = deliveryID(0, uint64(n)) //nolint:gosec // not negative
		start.ID = execution.IDForDelivery(start.WorkflowID, start.NodeID, start.DeliveryID)
	}
	return start
}

func (c *DeliveryIDCost) publishMessages(ctx context.Context, s *system, withID bool) error {
	for n := range c.Messages {
		if ctx.Err() != nil {
			return errInterrupted
		}
		msg, err := stream.StartMessage(c.startMessage(n, withID))
		if err != nil {
			return err
		}
		if _, err := s.js.PublishMsgAsync(
			msg,
			jetstream.WithStallWait(publishAckTimeout),
		); err != nil {
			return err
		}
	}
	if err := s.awaitPublished(ctx); err != nil {
		return err
	}
	return c.verifyStream(ctx, s, withID)
}

// verifyStream returns an error if messages are missing from the stream. If the messages have
// delivery IDs, it also publishes one of them again, and checks that the stream recognizes the
// duplicate.
func (c *DeliveryIDCost) verifyStream(ctx context.Context, s *system, withID bool) error {
	all, err := s.js.Stream(ctx, stream.ExecutionsName)
	if err != nil {
		return err
	}
	if n := all.CachedInfo().State.Msgs; n != uint64(c.Messages) { //nolint:gosec // not negative
		return fmt.Errorf("the stream has %d messages, not %d", n, c.Messages)
	}
	if !withID {
		return nil
	}
	msg, err := stream.StartMessage(c.startMessage(0, withID))
	if err != nil {
		return err
	}
	ack, err := s.js.PublishMsg(ctx, msg)
	if err == nil && !ack.Duplicate {
		err = errors.New("the server has forgotten a delivery ID")
	}
	return err
}

// gcDoneLine is the line that the benchmark's NATS server logs after SIGUSR1.
const gcDoneLine = "memory is collected"

// residentAfterGC returns the resident memory in MB of the benchmark's NATS server after it has
// collected garbage and returned unused memory to the system.
func (p *process) residentAfterGC(ctx context.Context) (int, error) {
	if err := p.Signal(syscall.SIGUSR1); err != nil {
		return 0, err
	}
	if err := p.awaitLine(ctx, func(line string) bool { return line == gcDoneLine }); err != nil {
		return 0, err
	}
	return residentMB(p.PID())
}
