// Package ops provides a program's log and its operations listener: metrics, health, readiness,
// profiles and the log level.
package ops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"
)

// Version is the release of the program, or the output of git describe. Commit is the commit and
// its time. The build sets both variables.
var (
	Version = "dev"
	Commit  = "unknown"
)

// Readiness holds the components of a program that are not ready, and why. It is safe for
// concurrent use.
type Readiness struct {
	mu      sync.Mutex
	reasons map[string]string // why a component is not ready, by component
}

// MarkNotReady marks a component of the program as not ready, until MarkReady is called for it. why
// explains the reason to operators.
func (r *Readiness) MarkNotReady(component, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reasons == nil {
		r.reasons = map[string]string{}
	}
	r.reasons[component] = why
}

// MarkReady marks a component of the program as ready. It does nothing if the component is ready
// already.
func (r *Readiness) MarkReady(component string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reasons, component)
}

// NotReadyReasons returns one line for each component that is not ready, in the form "component:
// reason", sorted. It returns an empty slice if all components are ready.
func (r *Readiness) NotReadyReasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	reasons := make([]string, 0, len(r.reasons))
	for part, why := range r.reasons {
		reasons = append(reasons, part+": "+why)
	}
	sort.Strings(reasons)
	return reasons
}

// Ops holds the metrics, the readiness and the traces of a process. Services in one process share
// it.
type Ops struct {
	// Metrics is the registry of the metrics that the process exposes.
	Metrics *prometheus.Registry
	// Readiness holds the components of the process that are not ready.
	Readiness *Readiness
	// TracerProvider creates spans. nil means that tracing is off, which costs nothing.
	TracerProvider trace.TracerProvider
}

// New returns an Ops with the metrics of the Go runtime, the process and the build. Every component
// counts as ready until it is marked as not ready.
func New() *Ops {
	return &Ops{Metrics: newMetrics(), Readiness: &Readiness{}}
}

// SetUp returns the log and the Ops of a service. If log is nil, it creates a log with
// the given level.
//
// If the caller passes an existing Ops in given, SetUp returns that Ops, "" as bound, and
// a stop that does nothing. If given is nil, it creates an Ops, marks the service as not ready, and
// serves the Ops on addr until stop is called. bound is then the actual address, which differs from
// addr if the port is 0.
func SetUp(
	ctx context.Context, service string, given *Ops, log *logrus.Logger, level, addr string,
) (o *Ops, l *logrus.Logger, bound string, stop func(), err error) {
	if log == nil {
		if log, err = NewLogger(service, level); err != nil {
			return nil, nil, "", nil, err
		}
	}
	if given != nil {
		return given, log, "", func() {}, nil
	}
	o = New()
	o.Readiness.MarkNotReady(service, "starting")
	bound, stop, err = o.StartServer(ctx, addr, log)
	return o, log, bound, stop, err
}

// StartServer serves o on addr until stop is called. bound is the address that it listens on, which
// differs from addr if the port is 0.
func (o *Ops) StartServer(
	ctx context.Context, addr string, log *logrus.Logger,
) (bound string, stop func(), err error) {
	listener, err := Listen(ctx, addr, "--ops-addr")
	if err != nil {
		return "", nil, err
	}
	handler := o.handler(log)
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		handler = refuseHostNames(handler)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          NewServerLogger(log),
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.WithError(err).Error("the ops listener ended")
		}
	}()
	stop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // a scrape or a profile that does not end must not delay the exit
		}
	}
	return listener.Addr().String(), stop, nil
}

// Listen is like net.Listen for TCP, but its errors name the flag and suggest a remedy. It refuses
// an empty address, for example from an unset variable in a compose file, because net.Listen would
// listen on every interface.
func Listen(ctx context.Context, addr, flag string) (net.Listener, error) {
	if addr == "" {
		return nil,
			fmt.Errorf("%s is empty; name an address like 127.0.0.1:8080, or leave it out for "+
				"the default", flag)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil,
			fmt.Errorf("cannot listen on %s (%w); free it, or choose another with %s", addr,
				unwrapOpError(err), flag)
	}
	return listener, nil
}

// unwrapOpError removes a prefix like "listen tcp 127.0.0.1:80: ", which package net adds, from an
// error, because the message of Listen already contains the address.
func unwrapOpError(err error) error {
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		return operation.Err
	}
	return err
}

const logLevelNames = "error, warn, info or debug"

// NewLogger returns a log that writes to stderr: JSON lines, or human-readable lines on a terminal.
// A separate goroutine writes the JSON lines, so call FlushLog before the process exits.
func NewLogger(program, level string) (*logrus.Logger, error) {
	parsed, err := logrus.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("--log-level %q: use %s", level, logLevelNames)
	}
	log := logrus.New()
	log.SetLevel(parsed)
	log.SetFormatter(jsonLineFormatter{program})
	log.SetOutput(stderr)
	log.ExitFunc = func(code int) {
		FlushLog()
		os.Exit(code)
	}
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		log.SetOutput(os.Stderr)
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, TimestampFormat: time.TimeOnly})
	}
	return log, nil
}
