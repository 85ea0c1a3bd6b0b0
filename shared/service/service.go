// Package service implements the parts that an ingress and an executor share: log, metrics,
// readiness, traces, a listener with or without TLS, a connection to NATS, and a graceful shutdown.
package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/lifecycle"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/otlp"
	"github.com/hookstart/hookstart/shared/tlsfiles"
)

// Config holds the name, the flags and the in-process settings of a service.
type Config struct {
	Name        string // "ingress" or "executor"; used in logs, metrics and readiness
	Description string // what the service provides, in words, such as "the webhook endpoint"
	Addr        string // address of the service; ignored if Listener is set

	OpsFlags
	TLSFlags
	NATSFlags
	ConnectFlags
	ShutdownFlags
	LogFlags
	InProcessSettings
}

// InProcessSettings holds the objects that a Go program passes to a service if it runs several
// services in one process. No flag sets them. The zero value is for a service that is alone in its
// process.
type InProcessSettings struct {
	// NATSOptions holds additional options for the NATS connection. hookstart-local uses them to
	// connect in process.
	NATSOptions []nats.Option
	// Listener accepts the connections. If it is nil, the service listens on its --addr.
	Listener net.Listener
	// Log replaces the service's logger; its level overrides LogLevel. nil means that the service
	// creates one.
	Log *logrus.Logger
	// Ops is an ops endpoint that all services of this process share. If it is set, the process
	// serves it, and the service opens no ops listener of its own. nil means that the service
	// serves its own ops endpoint on OpsAddr.
	Ops *ops.Ops
}

// Service is a running service. Its components are stopped in the reverse order of their start.
type Service struct {
	lifecycle.Components
	Ops       *ops.Ops            // Config.Ops, or the one that the service created
	Log       *logrus.Logger      // Config.Log, or the one that the service created
	NATS      *nats.Conn          // the connection; nil before Connect
	JetStream jetstream.JetStream // for the same connection; nil before Connect

	config          Config
	listener        net.Listener
	servingListener net.Listener // listener, with TLS if there is a certificate
	opsAddr         string
	natsClosed      chan error // receives the reason if the connection closes for good
}

// Run starts a service and calls run. The function run must call Connect and then Serve, and must
// return when its context ends. All components have stopped when Run returns. If ctx has ended, Run
// returns nil, because stopping a service while it is starting is not a failure.
func Run(ctx context.Context, c Config, run func(context.Context, *Service) error) error {
	s := &Service{config: c}
	defer s.Stop()
	err := s.startOpsAndListener(ctx)
	if err == nil {
		err = run(ctx, s)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// startOpsAndListener starts to listen before anything else, so that a port in use is reported
// immediately. Requests are served once everything is ready.
func (s *Service) startOpsAndListener(ctx context.Context) (err error) {
	c := s.config
	var stopOps func()
	if s.Ops, s.Log, s.opsAddr, stopOps, err = ops.SetUp(ctx, c.Name, c.Ops, c.Log,
		c.LogLevel,
		c.OpsAddr); err != nil {
		return err
	}
	s.Add(stopOps)
	s.Ops.RegisterReadyGauge(c.Name)
	if c.Ops == nil {
		traces, stopTraces, err := otlp.Start(ctx, c.Name, s.Log)
		if err != nil {
			return err
		}
		s.Add(stopTraces)
		s.Ops.TracerProvider = traces
	}
	if s.listener = c.Listener; s.listener == nil {
		if s.listener, err = ops.Listen(ctx, c.Addr, "--addr"); err != nil {
			return err
		}
	}
	s.Add(func() { _ = s.listener.Close() })
	s.servingListener, err = tlsfiles.WrapListener(s.listener, c.TLSCert, c.TLSKey, c.Name,
		s.Ops.Metrics, s.Log)
	return err
}

// Connect connects to NATS. It returns when the service is connected, ConnectTimeout has passed or
// ctx ends. If the connection is later closed for good, Serve returns, so that a supervisor can
// restart the program.
func (s *Service) Connect(ctx context.Context) (err error) {
	c := s.config
	s.natsClosed = make(chan error, 1)
	if s.NATS, err = bus.Connect(ctx, bus.Options{
		URL: c.NATSURL, Name: "hookstart " + c.Name, ConnectTimeout: c.ConnectTimeout,
		CredsFile: c.NATSCreds, CAFile: c.NATSCA, Extra: c.NATSOptions, Log: s.Log,
		OnClosed: func(err error) { s.natsClosed <- err },
	}); err != nil {
		return err
	}
	s.Add(s.NATS.Close)
	bus.RegisterMetrics(s.Ops.Metrics, c.Name, s.NATS)
	if s.JetStream, err = jetstream.New(s.NATS); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	return nil
}

// Serve serves requests and announces that the service is ready. It returns when ctx ends, when the
// server fails, or when the connection to NATS is closed for good. Before it returns, it gives
// requests in flight up to ShutdownTimeout to finish, and stops all components. checks are the
// readiness checks of the service. The log line that announces the service contains the fields in
// about. If ready is not nil, Serve calls it once the service is ready, with the addresses of the
// service and of its ops endpoint.
func (s *Service) Serve(
	ctx context.Context, server *http.Server, checks []ops.Check, about logrus.Fields, ready func(
		addr, opsAddr string,
	),
) error {
	s.Add(s.Ops.Watch(ctx, s.Log, checks...))
	s.StartRequired(ctx, s.awaitConnectionClosed)
	s.StartRequired(ctx, func(ctx context.Context, _ func()) error { return s.serve(ctx, server) })
	s.Ops.Readiness.MarkReady(s.config.Name)
	addr := s.listener.Addr().String()
	s.Log.WithFields(about).WithFields(logrus.Fields{
		"addr":     addr,
		"ops_addr": s.opsAddr,
		"version":  ops.Version,
	}).Info(s.config.Name + " is ready")
	if ready != nil {
		ready(addr, s.opsAddr)
	}
	return s.WaitAndStop(ctx)
}

// awaitConnectionClosed returns when the connection to NATS is closed for good, or when ctx ends.
func (s *Service) awaitConnectionClosed(ctx context.Context, _ func()) error {
	select {
	case err := <-s.natsClosed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (s *Service) serve(ctx context.Context, server *http.Server) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(s.servingListener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("%s ended: %w", s.config.Description, err)
	case <-ctx.Done():
	}
	s.Ops.Readiness.MarkNotReady(s.config.Name, "stopping")
	s.Log.Info(s.config.Name + " stops: it accepts no more and finishes what is in flight")
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.ShutdownTimeout)
	defer cancel()
	if err := server.Shutdown(finishing); err != nil {
		s.Log.WithError(err).Warn("requests in flight took too long and were cut off")
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s ended: %w", s.config.Description, err)
	}
	return nil
}
