package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/executor/withpostgres"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/runner"
)

// The roles: names under which the binary starts itself (in os.Args[0]) to act as one of the
// programs. Programs whose names begin with benchRolePrefix exist only in the benchmark.
const (
	benchRolePrefix = "bench-"
	roleNATS        = benchRolePrefix + "nats"
	roleBare        = benchRolePrefix + "bare"
	roleEmbedded    = benchRolePrefix + "embedded"
	roleHTTP        = benchRolePrefix + "http"
	roleRunner      = benchRolePrefix + "runner"
	roleIngress     = "ingress"
	roleExecutor    = "executor"
	roleLocal       = "hookstart-local"
)

// RunAsRole makes this process act as one of the programs if it was started under the program's
// name. It returns true once that program has ended, and false at once if no program has that name.
// main must call it before Run.
func RunAsRole() bool {
	// own runs one of the benchmark's own programs. Unlike hookstart's programs, it keeps Go's
	// default runtime settings, as a simple program would.
	own := func(run func(context.Context) error) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:gocritic // nothing to clean up
		}
	}
	switch os.Args[0] {
	case roleNATS:
		own(func(ctx context.Context) error { return runNATS(ctx, os.Args[1]) })
	case roleBare:
		own(func(ctx context.Context) error { return runBarePublisher(ctx, os.Args[1]) })
	case roleEmbedded:
		own(func(ctx context.Context) error { return runBareEmbedded(ctx, os.Args[1]) })
	case roleHTTP:
		own(runHTTP)
	case roleRunner:
		own(func(ctx context.Context) error { return runRunner(ctx, os.Args[1]) })
	case roleIngress:
		defer startProfile()()
		program.Main("ingress", "", ingress.Run)
	case roleExecutor:
		defer startProfile()()
		program.Main("executor", "", withpostgres.Run)
	case roleLocal:
		defer startProfile()()
		program.Main("hookstart-local", "", local.Run)
	default:
		return false
	}
	return true
}

// tracedEnv is the environment variable that makes the benchmark's own programs serve execution
// traces.
const tracedEnv = "BENCH_TRACED"

// announceReady logs that one of the benchmark's own programs is ready. If tracedEnv is set, it
// first starts to serve execution traces.
func announceReady(ctx context.Context, role, addr string) error {
	ready := readyEvent{Message: readyMessage(role), Addr: addr}
	if os.Getenv(tracedEnv) != "" {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		ready.OpsAddr = listener.Addr().String()
		mux := http.NewServeMux()
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		server := &http.Server{Handler: mux} //nolint:gosec // on loopback, until the process ends
		go func() { _ = server.Serve(listener) }()
	}
	return json.NewEncoder(os.Stdout).Encode(ready)
}

// runnerGroup is the name of the runner group that the benchmark's runner joins.
const runnerGroup = "bench"

// runRunner runs a runner until ctx ends. Its handler does no work and returns an output.
func runRunner(ctx context.Context, natsURL string) error {
	nc, err := nats.Connect(natsURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	var ready error
	options := runner.Options{Group: runnerGroup, Concurrency: 500, OnReady: func() {
		ready = announceReady(ctx, roleRunner, "")
	}}
	err = runner.Run(ctx, nc, options, func(context.Context, runner.Execution) (any, error) {
		return map[string]bool{"ok": true}, nil
	})
	return errors.Join(err, ready)
}

// runNATS runs a NATS server until ctx ends. options holds embednats.Options as JSON. On SIGUSR1
// the server returns unused memory to the system.
func runNATS(ctx context.Context, options string) error {
	var o embednats.Options
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	server, err := embednats.Start(o)
	if err != nil {
		return err
	}
	defer server.Shutdown()
	addr := strings.TrimPrefix(server.ClientURL(), "nats://")
	if err := announceReady(ctx, roleNATS, addr); err != nil {
		return err
	}
	collect := make(chan os.Signal, 1)
	signal.Notify(collect, syscall.SIGUSR1)
	for {
		select {
		case <-collect:
			debug.FreeOSMemory()
			fmt.Println(gcDoneLine)
		case <-ctx.Done():
			return nil
		}
	}
}
