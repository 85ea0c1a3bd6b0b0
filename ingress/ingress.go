// Package ingress implements the webhook endpoint. It validates each request and publishes a start
// message to the stream, and responds with 200 only after the stream has confirmed that the message
// is stored.
package ingress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/await"
	"github.com/hookstart/hookstart/ingress/internal/gossip"
	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/ingress/internal/report"
	"github.com/hookstart/hookstart/ingress/internal/storage"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/probe"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/service"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/tracing"
)

// Limits of a connection. Go's server reads 4 KB more than MaxHeaderBytes, so the request line and
// headers may have 32 KB in total.
const (
	maxHeaderBytes    = 32<<10 - 4<<10
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	responseTimeout   = 10 * time.Second // maximum time for a client to read the response
)

// Run serves until ctx is done, then drains the requests in flight and returns nil. Its errors are
// human-readable single lines.
func Run(ctx context.Context, c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	keys, err := seal.ReadKeyFile(c.SecretsKeyFile)
	if err != nil {
		return err
	}
	return service.Run(ctx, c.serviceConfig(), func(ctx context.Context, s *service.Service) error {
		e := &endpoint{
			Service:  s,
			config:   c,
			keys:     keys,
			snapshot: registry.NewSnapshot(keys),
			probeKey: probe.NewKey(),
		}
		return e.run(ctx)
	})
}

func (c *Config) serviceConfig() service.Config {
	return service.Config{
		Name:              "ingress",
		Description:       "the webhook endpoint",
		Addr:              c.Addr,
		OpsFlags:          c.OpsFlags,
		TLSFlags:          c.TLSFlags,
		NATSFlags:         c.NATSFlags,
		ConnectFlags:      c.ConnectFlags,
		ShutdownFlags:     c.ShutdownFlags,
		LogFlags:          c.LogFlags,
		InProcessSettings: c.InProcessSettings,
	}
}

// endpoint is the running webhook endpoint. Its run method calls the other methods in the order in
// which they are declared.
type endpoint struct {
	*service.Service
	config   Config
	keys     *seal.Keys
	snapshot *registry.Snapshot
	probeKey []byte

	follower        *consistency.Follower
	lease           *consistency.Lease
	sharedPublisher *publish.StreamPublisher // for the stream that the queues share
	streams         *publish.StreamRouter
	handler         *handler
}

func (e *endpoint) run(ctx context.Context) error {
	starting, cancel := context.WithTimeout(ctx, e.config.ConnectTimeout)
	defer cancel()
	for _, step := range []func(context.Context) error{
		e.connect, e.followRegistry, e.makeHandler, e.startHeartbeat,
	} {
		if err := step(starting); err != nil {
			return err
		}
	}
	var ready func(addr, opsAddr string)
	if e.config.OnReady != nil {
		ready = func(addr, opsAddr string) {
			e.config.OnReady(ListenAddresses{Addr: addr, OpsAddr: opsAddr})
		}
	}
	checks := readinessChecks(e.NATS, e.JetStream, e.lease,
		startMessageStreams{e.sharedPublisher, e.streams, e.snapshot})
	//nolint:contextcheck // each request has its own context
	return e.Serve(ctx, e.handler.server(e.Log), checks, logrus.Fields{
		"workflows": e.snapshot.WorkflowCount(),
	}, ready)
}

// connect connects to NATS, checks that the maximum message size leaves room for the longest body,
// and waits for the stream and the buckets that the executor creates.
func (e *endpoint) connect(ctx context.Context) error {
	if err := e.Connect(ctx); err != nil {
		return err
	}
	maxBody, maxPayload := e.config.MaxBodyBytes, e.NATS.MaxPayload()
	if room := maxPayload - usualMessageOverhead; maxBody > room {
		return fmt.Errorf("--max-body-bytes %d does not fit into a NATS message: the server's "+
			"max_payload is %d; lower the one to %d or raise the other",
			maxBody, maxPayload, room)
	}
	if room := maxPayload - maxMessageOverhead; maxBody > room {
		e.Log.Warnf("--max-body-bytes %d leaves little room in a NATS message of %d bytes: a "+
			"body of that length with thousands of query parameters is refused as too large; %d "+
			"always fits",
			maxBody, maxPayload, room)
	}
	return waitForStreams(ctx, e.JetStream, e.config.ConnectTimeout)
}

func (e *endpoint) followRegistry(ctx context.Context) (err error) {
	if e.follower, err = consistency.Follow(ctx, e.JetStream, e.snapshot, e.Log); err != nil {
		return err
	}
	e.Add(e.follower.Stop)
	return nil
}

// makeHandler creates the handler and its dependencies. The dependencies outlive ctx because they
// send their last reports when they are stopped.
func (e *endpoint) makeHandler(ctx context.Context) (err error) {
	if e.sharedPublisher, err = publish.New(ctx, e.NATS, e.config.PublishTimeout); err != nil {
		return err
	}
	e.Add(e.sharedPublisher.Close)
	e.streams = publish.NewStreamRouter(e.NATS, e.sharedPublisher)
	e.Add(e.streams.Close)
	duplicates, refused, seen, filtered := report.NewDuplicateCounter(e.JetStream, e.Log),
		report.NewRefusalCounter(e.JetStream, e.Log), report.NewSenderObserver(e.JetStream, e.Log),
		report.NewFilteredRequestCounter(e.JetStream, e.Log)
	for _, run := range []func(context.Context){
		duplicates.Run, refused.Run, seen.Run, filtered.Run,
	} {
		e.Go(context.WithoutCancel(ctx), run)
	}

	limiter, space := admission.NewLimiter(), storage.New(e.snapshot.AccountCount)
	following, err := storage.Follow(ctx, e.JetStream, space, e.Log)
	if err != nil {
		return err
	}
	e.Add(following.Stop)
	exchange, err := gossip.Start(e.NATS, limiter, space, e.snapshot, e.Log)
	if err != nil {
		return err
	}
	e.Add(exchange.Stop)
	//nolint:contextcheck // it is renewed until the last response is sent
	e.lease = consistency.NewLease(e.NATS, e.follower)
	e.Add(e.lease.Stop)
	publisher := withInFlightCount(e.streams, e.config.Publishing)
	e.handler = newHandler(e.config, dependencies{
		admission:            admission.New(e.snapshot, limiter),
		lease:                e.lease,
		publisher:            withRoomCheck(publisher, e.config.CheckRoom),
		space:                space,
		duplicates:           duplicates,
		refusals:             refused,
		senders:              seen,
		filtered:             filtered,
		waits:                await.New(e.NATS, int(e.config.MaxWaiting)),
		queuesWithOwnStreams: e.snapshot.QueuesWithOwnStreams,
		probes:               probe.NewResponder(e.probeKey),
		metrics:              newRequestMetrics(e.Ops.Metrics),
		tracer:               tracing.Tracer(e.Ops.TracerProvider, "ingress"),
		log:                  e.Log,
		sealer: func(workflowID, nodeID, secret string) ([]byte, error) {
			return e.keys.Seal([]byte(secret), registry.CapturedSecretSealPurpose(workflowID,
				nodeID))
		},
	})
	registerStateMetrics(e.Ops.Metrics, e.snapshot, e.follower, e.lease, e.handler.waits)
	return nil
}

// startHeartbeat starts this process's heartbeat. From then on, a change of the registry is
// confirmed only once this process has applied it.
func (e *endpoint) startHeartbeat(ctx context.Context) error {
	heartbeat, err := consistency.StartHeartbeat(ctx, e.NATS, e.follower, consistency.RoleIngress,
		&consistency.IngressSettings{
			PublicURL:         e.config.PublicURL,
			MaxBodyBytes:      e.config.MaxBodyBytes,
			DeliveryIDHeaders: e.config.allDeliveryIDHeaders(),
			ProbeKey:          e.probeKey,
		}, consistency.ProcessInfo{
			Version:      ops.Version,
			KeyIDs:       e.keys.IDs(),
			Capabilities: consistency.Capabilities(),
		}, e.Log)
	if err != nil {
		return err
	}
	e.Add(heartbeat.Stop)
	sealed := e.snapshot.DecryptionCounts()
	if err := sealed.CheckAnyDecrypted(e.keys); err != nil {
		return err
	}
	if n, why := e.snapshot.UnusableSenderCount(); n > 0 {
		e.Log.WithError(why).WithField("workflows",
			n).Warn(cmp.Or(sealed.Warning(),
			"senders of some workflows cannot be used here: requests to them are answered with "+
				"503"))
	}
	return nil
}

// server returns the endpoint's HTTP server, with limits for each connection. When it is shut down,
// requests stop waiting for their executions.
func (h *handler) server(log *logrus.Logger) *http.Server {
	server := &http.Server{
		Handler:           h.router(),
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout,
		WriteTimeout:      h.responseTimeout, // counts from the headers: see extendWriteDeadline
		IdleTimeout:       idleTimeout,
		ErrorLog:          ops.NewServerLogger(log),
		// OPTIONS * is treated like any other path that is not a webhook path.
		DisableGeneralOptionsHandler: true,
	}
	server.RegisterOnShutdown(h.waits.Stop)
	return server
}

// waitForStreams waits for the stream and the registry, which the executor creates.
func waitForStreams(ctx context.Context, js jetstream.JetStream, timeout time.Duration) error {
	if err := errors.Join(stream.AwaitExecutionsCreated(ctx, js), consistency.WaitForBucket(ctx,
		js)); err != nil {
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err()
		}
		return fmt.Errorf("NATS has no hookstart stream and registry after %s (%w); start the "+
			"executor, it creates them", timeout, err)
	}
	return nil
}
