// Package service implements what an ingress and an executor have in common: log, metrics,
// readiness, traces, a listener with or without TLS, a connection to NATS, and an orderly end.
package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/lifecycle"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/otlp"
	"github.com/hookstart/hookstart/shared/tlsfiles"
)

// Config configures a service. Its fields have the meaning of the fields with the same names in the
// services' configurations.
type Config struct {
	Name   string // "ingress" or "executor": in logs, metrics and readiness
	Serves string // what the service is, for people, such as "the webhook endpoint"

	Addr     string // address of the service; not used if Listener is set
	OpsAddr  string // address of metrics and health checks; not used if Ops is set
	LogLevel string // error, warn, info or debug; not used if Log is set

	TLSCert string // certificate chain file; "" means that the service speaks plain HTTP
	TLSKey  string // private key file of TLSCert

	NATSURL     string        // URLs of the NATS servers, comma-separated
	NATSCreds   string        // credentials file; "" means none
	NATSCA      string        // file with the servers' certificate authority; "" means the system's
	NATSOptions []nats.Option // further options of the connection

	ConnectTimeout time.Duration // maximum time for which Connect waits for a server
	ShutdownGrace  time.Duration // time for which requests in flight may go on after ctx ends

	Listener net.Listener   // nil means that the service listens on Addr
	Log      *logrus.Logger // nil means a log of its own
	Ops      *ops.Ops       // nil means an endpoint of its own, served on OpsAddr
}

// Service is a service that has begun. Its Parts stop in the reverse order.
type Service struct {
	lifecycle.Parts
	Ops       *ops.Ops            // Config.Ops, or the service's own
	Log       *logrus.Logger      // Config.Log, or the service's own
	NATS      *nats.Conn          // the connection; nil before Connect
	JetStream jetstream.JetStream // the same connection; nil before Connect

	config   Config
	listener net.Listener
	serving  net.Listener // listener, with TLS if it has a certificate
	opsAddr  string
	closed   chan error // gets why the connection to NATS was closed for good
}

// Run begins a service and calls run, which connects it and serves until its context ends. All
// parts have stopped when Run returns. Run returns nil if ctx has ended: that the caller ended the
// service while it was starting is not a failure.
func Run(ctx context.Context, c Config, run func(context.Context, *Service) error) error {
	s := &Service{config: c}
	defer s.Stop()
	err := s.begin(ctx)
	if err == nil {
		err = run(ctx, s)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// begin listens before anything else, so that a port in use is reported at once. Requests are
// served when everything is ready.
func (s *Service) begin(ctx context.Context) (err error) {
	c := s.config
	var stopOps func()
	if s.Ops, s.Log, s.opsAddr, stopOps, err = ops.Begin(ctx, c.Name, c.Ops, c.Log, c.LogLevel,
		c.OpsAddr); err != nil {
		return err
	}
	s.Add(stopOps)
	if c.Ops == nil {
		traces, stopTraces, err := otlp.Start(ctx, c.Name, s.Log)
		if err != nil {
			return err
		}
		s.Add(stopTraces)
		s.Ops.Traces = traces
	}
	if s.listener = c.Listener; s.listener == nil {
		if s.listener, err = ops.Listen(ctx, c.Addr, "--addr"); err != nil {
			return err
		}
	}
	s.Add(func() { _ = s.listener.Close() })
	s.serving, err = tlsfiles.Listen(s.listener, c.TLSCert, c.TLSKey, c.Name, s.Ops.Metrics, s.Log)
	return err
}

// Connect connects to NATS and waits for that until ctx ends. If the connection is closed for good
// later, Serve returns, so that a supervisor starts the program anew.
func (s *Service) Connect(ctx context.Context) (err error) {
	c := s.config
	s.closed = make(chan error, 1)
	if s.NATS, err = bus.Connect(ctx, bus.Options{
		URL: c.NATSURL, Name: "hookstart " + c.Name, Timeout: c.ConnectTimeout,
		CredsFile: c.NATSCreds, CAFile: c.NATSCA, Extra: c.NATSOptions, Log: s.Log,
		Closed: func(err error) { s.closed <- err },
	}); err != nil {
		return err
	}
	s.Add(s.NATS.Close)
	bus.Register(s.Ops.Metrics, c.Name, s.NATS)
	if s.JetStream, err = jetstream.New(s.NATS); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	return nil
}

// Serve serves requests and announces that the service is ready. It returns when ctx ends, when the
// server fails, or when the connection to NATS is closed for good. By then requests in flight have
// finished, for which they have ShutdownGrace, and all parts have stopped. about is added to the
// announcement in the log. ready may be nil.
func (s *Service) Serve(
	ctx context.Context, server *http.Server, checks []ops.Check, about logrus.Fields, ready func(
		addr, opsAddr string,
	),
) error {
	s.Add(s.Ops.Watch(ctx, s.Log, checks...))
	s.Start(ctx, s.watchConnection)
	s.Start(ctx, func(ctx context.Context, _ func()) error { return s.serve(ctx, server) })
	s.Ops.Ready.Ready(s.config.Name)
	addr := s.listener.Addr().String()
	s.Log.WithFields(about).WithFields(logrus.Fields{
		"addr":     addr,
		"ops_addr": s.opsAddr,
		"version":  ops.Version,
	}).Info(s.config.Name + " is ready")
	if ready != nil {
		ready(addr, s.opsAddr)
	}
	return s.Wait(ctx)
}

// watchConnection returns when the connection to NATS is closed for good.
func (s *Service) watchConnection(ctx context.Context, _ func()) error {
	select {
	case err := <-s.closed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (s *Service) serve(ctx context.Context, server *http.Server) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(s.serving) }()
	select {
	case err := <-failed:
		return fmt.Errorf("%s ended: %w", s.config.Serves, err)
	case <-ctx.Done():
	}
	s.Ops.Ready.NotReady(s.config.Name, "stopping")
	s.Log.Info(s.config.Name + " stops: it accepts no more and finishes what is in flight")
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.ShutdownGrace)
	defer cancel()
	if err := server.Shutdown(finishing); err != nil {
		s.Log.WithError(err).Warn("requests in flight took too long and were cut off")
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s ended: %w", s.config.Serves, err)
	}
	return nil
}
