// Package ingress is the webhook endpoint: it validates a request and puts an
// execution-start message into the stream. It answers 200 only when the stream has
// confirmed that the message is stored.
package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/gossip"
	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/ingress/internal/report"
	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/probe"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/agree"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/tlsfiles"
	"github.com/hookstart/hookstart/shared/tracing"
	"github.com/hookstart/hookstart/shared/tracing/otlp"
)

// The bounds of a connection. Go's server reads 4 KB more than MaxHeaderBytes, so the
// request line and the headers together may be 32 KB.
const (
	maxHeaderBytes    = 32<<10 - 4<<10
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	answerTimeout     = 10 * time.Second // for a client to read the answer
)

// Run serves until the context ends, then finishes what is in flight and returns nil.
// Its errors are for people: one line that says what to do.
func Run(ctx context.Context, c Config) error {
	err := run(ctx, c)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ended by the caller while waiting at the start: not a failure
	}
	return err
}

func run(ctx context.Context, c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	keys, err := seal.ReadFile(c.SecretsKeyFile)
	if err != nil {
		return err
	}
	o, log, opsAddr, stopOps, err := ops.Begin(ctx, "ingress", c.Ops, c.Log, c.LogLevel, c.OpsAddr)
	if err != nil {
		return err
	}
	defer stopOps()
	if c.Ops == nil {
		traces, stopTraces, err := otlp.Start(ctx, "ingress", log)
		if err != nil {
			return err
		}
		defer stopTraces()
		o.Traces = traces
	}
	// Listen first: a port in use is reported at once. Requests are served when everything is ready.
	listener := c.Listener
	if listener == nil {
		var err error
		if listener, err = ops.Listen(ctx, c.Addr, "--addr"); err != nil {
			return err
		}
	}
	defer func() { _ = listener.Close() }()
	serving, err := tlsfiles.Listen(listener, c.TLSCert, c.TLSKey, "ingress", o.Metrics, log)
	if err != nil {
		return err
	}

	starting, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
	defer cancel()
	nc, err := bus.Connect(starting, bus.Options{
		URL: c.NATSURL, Name: "hookstart ingress", Timeout: c.ConnectTimeout,
		CredsFile: c.NATSCreds, CAFile: c.NATSCA, Extra: c.NATSOptions, Log: log,
	})
	if err != nil {
		return err
	}
	defer nc.Close()
	bus.Register(o.Metrics, "ingress", nc)
	if room := nc.MaxPayload() - messageOverhead; c.MaxBodyBytes > room {
		return fmt.Errorf("--max-body-bytes %d does not fit into a NATS message: the server's max_payload is %d; lower the one to %d or raise the other",
			c.MaxBodyBytes, nc.MaxPayload(), room)
	}
	if room := nc.MaxPayload() - mostOverhead; c.MaxBodyBytes > room {
		log.Warnf("--max-body-bytes %d leaves little room in a NATS message of %d bytes: a body of that length with thousands of query parameters is refused as too large; %d always fits",
			c.MaxBodyBytes, nc.MaxPayload(), room)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	if err := waitForExecutor(starting, js, c.ConnectTimeout); err != nil {
		return err
	}

	snapshot := registry.NewSealedSnapshot(keys)
	follower, err := agree.Follow(starting, js, snapshot, log)
	if err != nil {
		return err
	}
	defer follower.Stop()
	publisher, err := publish.New(starting, nc, c.PublishTimeout)
	if err != nil {
		return err
	}
	defer publisher.Close()
	duplicates := report.NewDuplicates(js, log) //nolint:contextcheck // the last report is sent after ctx has ended
	defer duplicates.Stop()
	refused := report.NewRefusals(js, log) //nolint:contextcheck // as above
	defer refused.Stop()

	seen := report.NewSenders(js, log) //nolint:contextcheck // as above
	defer seen.Stop()

	limits := admission.NewLimits()
	talk, err := gossip.Start(nc, limits, snapshot, log)
	if err != nil {
		return err
	}
	defer talk.Stop()

	lease := agree.NewLease(nc, follower) //nolint:contextcheck // it is renewed until the last request is answered
	defer lease.Stop()
	probeKey := probe.NewKey()
	h := newHandler(c, admission.New(snapshot, limits), lease, publisher, duplicates, refused, seen, probe.NewAnswerer(probeKey), newRequestMetrics(o.Metrics), log)
	h.tracer = tracing.Tracer(o.Traces, "ingress")
	h.sealer = func(workflowID, nodeID, secret string) ([]byte, error) {
		return keys.Seal([]byte(secret), registry.AboutCaptured(workflowID, nodeID))
	}
	registerState(o.Metrics, snapshot, follower, lease)
	server := h.server(log)

	// From here on changes of the registry wait for this process.
	announcer, err := agree.Announce(starting, nc, follower, agree.RoleIngress, &hookstartv1.IngressSettings{
		PublicUrl: c.PublicURL, MaxBodyBytes: c.MaxBodyBytes, DeliveryIdHeaders: c.allDeliveryIDHeaders(), ProbeKey: probeKey,
	}, log)
	if err != nil {
		return err
	}
	defer announcer.Stop()
	if n, why := snapshot.Unusable(); n > 0 {
		return fmt.Errorf("senders of %d workflows cannot be used here: %w; give this ingress the executor's --secrets-key-file, or set those senders anew", n, why)
	}

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(serving) }()
	stopChecks := o.Watch(ctx, log, checks(nc, js, lease, publisher)...)
	defer stopChecks()
	o.Ready.Ready("ingress")
	where := Listening{Addr: listener.Addr().String(), OpsAddr: opsAddr}
	log.WithFields(logrus.Fields{"addr": where.Addr, "ops_addr": where.OpsAddr, "workflows": snapshot.Len(), "version": ops.Version}).Info("ingress is ready")
	if c.OnReady != nil {
		c.OnReady(where)
	}

	select {
	case err := <-failed:
		return fmt.Errorf("the webhook endpoint ended: %w", err)
	case <-ctx.Done():
	}
	o.Ready.NotReady("ingress", "stopping")
	log.Info("ingress stops: it accepts no more and finishes what is in flight")
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.ShutdownTimeout)
	defer cancel()
	if err := server.Shutdown(finishing); err != nil {
		log.WithError(err).Warn("requests in flight took too long and were cut off")
		_ = server.Close()
	}
	return nil
}

// server serves the endpoint, within the bounds of a connection.
func (h *handler) server(log *logrus.Logger) *http.Server {
	return &http.Server{
		Handler:           h.router(),
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout,
		WriteTimeout:      h.answerTimeout, // from the headers on; a later answer has as long: see answerSoon
		IdleTimeout:       idleTimeout,
		ErrorLog:          ops.ServerLog(log),
		// OPTIONS * is like every other path that is no webhook.
		DisableGeneralOptionsHandler: true,
	}
}

// waitForExecutor waits for the stream and the registry: the executor creates them.
func waitForExecutor(ctx context.Context, js jetstream.JetStream, timeout time.Duration) error {
	if err := errors.Join(stream.Wait(ctx, js), agree.WaitForBucket(ctx, js)); err != nil {
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err()
		}
		return fmt.Errorf("NATS has no hookstart stream and registry after %s (%w); start the executor, it creates them", timeout, err)
	}
	return nil
}
