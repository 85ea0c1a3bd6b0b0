// Package ops is a program's log, and its listener for operations: metrics, health, readiness, profiles and the log's level.
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

// Version is stamped by the build.
var Version = "dev"

// Readiness collects what keeps a program from being ready. It is safe for concurrent use.
type Readiness struct {
	mu      sync.Mutex
	waiting map[string]string
}

// NotReady says that a part is not ready, and why.
func (r *Readiness) NotReady(part, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[string]string{}
	}
	r.waiting[part] = why
}

// Ready says that a part is ready.
func (r *Readiness) Ready(part string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, part)
}

// Reasons are the parts that are not ready, one line each; none when all are.
func (r *Readiness) Reasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	reasons := make([]string, 0, len(r.waiting))
	for part, why := range r.waiting {
		reasons = append(reasons, part+": "+why)
	}
	sort.Strings(reasons)
	return reasons
}

// Ops is what a process shows of itself. Services that share a process share it.
type Ops struct {
	Metrics *prometheus.Registry
	Ready   *Readiness
	// Traces makes spans. nil: tracing is off, and costs nothing.
	Traces trace.TracerProvider
}

// New has the metrics of Go, of the process and of the build, and is ready.
func New() *Ops {
	return &Ops{Metrics: newMetrics(), Ready: &Readiness{}}
}

// Begin returns a service's log and Ops: those given, which stay the caller's, or new ones, which are served on addr until stop.
func Begin(ctx context.Context, service string, given *Ops, log *logrus.Logger, level, addr string) (o *Ops, l *logrus.Logger, bound string, stop func(), err error) {
	if log == nil {
		if log, err = NewLog(service, level); err != nil {
			return nil, nil, "", nil, err
		}
	}
	if given != nil {
		return given, log, "", func() {}, nil
	}
	o = New()
	o.Ready.NotReady(service, "starting")
	bound, stop, err = o.Serve(ctx, addr, log)
	return o, log, bound, stop, err
}

// Serve shows o on addr until stop is called. It returns the address that it listens on.
func (o *Ops) Serve(ctx context.Context, addr string, log *logrus.Logger) (bound string, stop func(), err error) {
	listener, err := Listen(ctx, addr, "--ops-addr")
	if err != nil {
		return "", nil, err
	}
	handler := o.handler(log)
	if tcp, is := listener.Addr().(*net.TCPAddr); is && tcp.IP.IsLoopback() {
		handler = byAddress(handler)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: ServerLog(log)}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.WithError(err).Error("the ops listener ended")
		}
	}()
	stop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // a scrape or a profile that does not end must not hold up the exit
		}
	}
	return listener.Addr().String(), stop, nil
}

// Listen is net.Listen for TCP with an error that says what to do, naming the flag of the address. An empty address, as from an unset
// variable of a compose file, is refused: net would listen on every interface.
func Listen(ctx context.Context, addr, flag string) (net.Listener, error) {
	if addr == "" {
		return nil, fmt.Errorf("%s is empty; name an address like 127.0.0.1:8080, or leave it out for the default", flag)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s (%w); free it, or choose another with %s", addr, rootCause(err), flag)
	}
	return listener, nil
}

// rootCause takes "listen tcp 127.0.0.1:80: bind:" off an error whose address is said already.
func rootCause(err error) error {
	if operation, is := errors.AsType[*net.OpError](err); is {
		return operation.Err
	}
	return err
}

const levels = "error, warn, info or debug"

// NewLog writes to stderr: JSON lines, or lines for people on a terminal. Those of Event may be late: call Flush before the exit.
func NewLog(program, level string) (*logrus.Logger, error) {
	parsed, err := logrus.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("--log-level %q: use %s", level, levels)
	}
	log := logrus.New()
	log.SetLevel(parsed)
	log.SetFormatter(jsonLines{program})
	log.SetOutput(stderr)
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		log.SetOutput(os.Stderr)
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, TimestampFormat: time.TimeOnly})
	}
	return log, nil
}
