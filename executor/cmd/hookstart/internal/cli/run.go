package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/target"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnermetrics"
)

// runCmd implements "hookstart run", a runner that runs a program or sends a POST request to a URL
// for each execution. The help texts of its flags are its documentation.
type runCmd struct {
	Command []string `arg:"" optional:"" name:"program" help:"The program to run for each execution, with its arguments, after --." passthrough:"partial"`

	Queue       string        `help:"The queue whose executions are taken." default:"default"`
	Group       string        `help:"The group that this runner belongs to: its members share the queue's executions, and other groups get them as well." default:"run"`
	Concurrency int           `help:"Executions at once. 0: 1 program, or 10 posts." default:"0"`
	Timeout     time.Duration `help:"How long one execution may take. Then a program is stopped and the execution fails; a post is tried again." default:"5m"`
	Attempts    int           `help:"Attempts before an execution that is tried again fails." default:"5"`
	OnlyNew     bool          `help:"A new group starts with executions that are accepted from now on, not with the oldest that the stream holds."`
	Raw         bool          `help:"Hand over the body as sent, in place of the input as JSON."`

	HTTP           string `name:"http" help:"Post each execution to this URL, in place of running a program." placeholder:"URL"`
	HTTPSecret     string `name:"http-secret" help:"Secret that signs posts as Standard Webhooks: whsec_ and base64. Better in a file or in the environment: other users may see a command's flags." placeholder:"SECRET"`
	HTTPSecretFile string `name:"http-secret-file" help:"File with such secrets, one a line; each signs, for a rotation." type:"path"`

	natsFlags
	ConnectTimeout time.Duration `help:"How long to wait at start for NATS." default:"30s"`
	DrainTimeout   time.Duration `help:"How long executions in flight may take to finish after SIGTERM; other members get the rest. 0: --timeout." default:"0s"`

	OpsAddr  string `help:"Address of metrics, /healthz and /readyz. Empty: none." placeholder:"ADDRESS"`
	LogLevel string `help:"error, warn, info or debug. At info, every attempt is one line." default:"info"`
}

func (*runCmd) Help() string {
	return `Takes executions from a queue and runs a program for each. It needs NATS only, no
admin token.

  stdin        the input as JSON; with --raw the body as sent
  environment  HOOKSTART_EXECUTION_ID, _WORKFLOW_ID, _NODE_ID, _DELIVERY_ID, _ATTEMPT, …,
               HOOKSTART_HEADER_X_GITHUB_EVENT for each header,
               HOOKSTART_QUERY_NAME for each query parameter
  exit code    0: succeeded, and stdout is the output; 75: tried again;
               any other: failed, with the end of stderr

SIGTERM, or control C, lets what runs finish; a second one stops it.
deploy/docs/run.md in the repository has everything else.

Examples:

  hookstart run --queue orders -- ./order.sh
  hookstart run --queue orders --http https://ci.example.com/hooks --http-secret-file secret`
}

func (v *runCmd) Run(s *session) error {
	if len(v.Command) > 0 && v.Command[0] == "--" { // kong does not remove it
		v.Command = v.Command[1:]
	}
	if err := v.validateFlags(); err != nil {
		return err
	}
	log, err := ops.NewLogger("hookstart-run", v.LogLevel)
	if err != nil {
		return &usageError{err.Error(), "hookstart run --help"}
	}
	defer ops.FlushLog()
	options := v.runnerOptions(log)
	cut, stopWatching := secondSignalContext()
	defer stopWatching()
	stopping, stop := context.WithCancel(cut)
	defer stop()
	defer context.AfterFunc(s.ctx, func() { time.AfterFunc(options.DrainTimeout, stop) })()
	handler, err := v.newHandlerFactory(s, log, stopping.Done())
	if err != nil {
		return err
	}
	nc, err := bus.Connect(s.ctx, bus.Options{
		URL:            v.NATSURL,
		Name:           "hookstart run",
		ConnectTimeout: v.ConnectTimeout,
		CredsFile:      v.NATSCreds,
		CAFile:         v.NATSCA,
		Log:            log,
	})
	if err != nil {
		return err
	}
	defer nc.Close()
	o := ops.New()
	o.Readiness.MarkNotReady("runner", "starting")
	if v.OpsAddr != "" {
		_, stop, err := o.StartServer(s.ctx, v.OpsAddr, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	stopChecks := o.Watch(s.ctx, log, ops.Check{
		Component: "NATS",
		Probe: func(context.Context) error {
			if !nc.IsConnected() {
				return errors.New("the connection is lost")
			}
			return nil
		},
	})
	defer stopChecks()
	options.Observe = runnermetrics.New(o.Metrics)
	options.OnReady = func() {
		o.Readiness.MarkReady("runner")
		log.WithFields(logrus.Fields{
			"queue":       v.Queue,
			"group":       v.Group,
			"concurrency": options.Concurrency,
			"version":     ops.Version,
		}).Info("runner is ready")
	}
	handle := handler(runner.MaxOutput(nc))
	return runner.Run(s.ctx, nc, options,
		func(ctx context.Context, e runner.Execution) (any, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(cut, cancel)()
			return handle(ctx, e)
		})
}

// validateFlags returns an error if flags are invalid or contradict each other.
func (v *runCmd) validateFlags() error {
	const help = "hookstart run --help"
	switch {
	case len(v.Command) == 0 && v.HTTP == "":
		return &usageError{"what shall run? name a program after --, or a URL with --http", help}
	case len(v.Command) > 0 && v.HTTP != "":
		return &usageError{"a program and --http exclude each other", help}
	case v.HTTP == "" && (v.HTTPSecret != "" || v.HTTPSecretFile != ""):
		return &usageError{"--http-secret and --http-secret-file are for --http", help}
	case v.HTTPSecret != "" && v.HTTPSecretFile != "":
		return &usageError{"--http-secret and --http-secret-file exclude each other", help}
	case v.Concurrency < 0 || v.Attempts < 1:
		return &usageError{"--concurrency must be at least 0 and --attempts at least 1", help}
	case v.Timeout <= 0 || v.DrainTimeout < 0 || v.ConnectTimeout <= 0:
		return &usageError{
			"--timeout and --connect-timeout must be more than 0, and --drain-timeout at least 0",
			help,
		}
	}
	return nil
}

// runnerOptions returns the options for package runner. If the handler runs a program, the
// package's timeout for the handler is longer than the timeout of the program. The handler then has
// time to end a program that exceeds its timeout.
func (v *runCmd) runnerOptions(log *logrus.Logger) runner.Options {
	o := runner.Options{
		Queue:        v.Queue,
		Group:        v.Group,
		OnlyNew:      v.OnlyNew,
		Concurrency:  v.Concurrency,
		Attempts:     v.Attempts,
		Timeout:      v.Timeout,
		DrainTimeout: cmp.Or(v.DrainTimeout, v.Timeout),
		Log:          ops.NewSlogLogger(log),
	}
	if v.HTTP != "" {
		o.Concurrency = cmp.Or(v.Concurrency, 10)
		return o
	}
	o.Concurrency = cmp.Or(v.Concurrency, 1)
	o.Timeout += target.CommandGrace
	if v.DrainTimeout == 0 {
		o.DrainTimeout += target.CommandGrace
	}
	return o
}

// newHandlerFactory validates the target, a program or a URL, before the runner receives any
// execution. It does not return the handler itself, but a function that creates the handler,
// because the maximum size of an output in bytes (maxOutput) is known only after connecting. If an
// execution is canceled, its program may run until the timeout. When stopping is closed, the
// handler ends such programs at once.
func (v *runCmd) newHandlerFactory(
	s *session, log logrus.FieldLogger, stopping <-chan struct{},
) (func(maxOutput int64) runner.Handler, error) {
	if v.HTTP == "" {
		path, err := findProgram(v.Command[0], "/bin/sh")
		if err != nil {
			return nil, err
		}
		c := &target.CommandHandler{
			Path:           path,
			Args:           v.Command[1:],
			Env:            target.InheritedEnv(os.Environ()),
			RawBody:        v.Raw,
			Timeout:        v.Timeout,
			Stderr:         s.Err,
			RunnerStopping: stopping,
		}
		return func(maxOutput int64) runner.Handler {
			c.MaxOutputBytes = maxOutput
			return c.Handle
		}, nil
	}
	to, err := url.Parse(v.HTTP)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return nil, &usageError{
			"--http must be like https://ci.example.com/hooks", "hookstart run --help",
		}
	}
	secrets, err := v.signingSecrets()
	if err != nil {
		return nil, err
	}
	if len(secrets) == 0 {
		log.Warn("posts are not signed: the target cannot know who sends them; set " +
			"--http-secret-file")
	}
	p := &target.HTTPHandler{
		URL:     to,
		Secrets: secrets,
		RawBody: v.Raw,
		Client:  target.NewClient(max(v.Concurrency, 10)),
	}
	return func(maxOutput int64) runner.Handler {
		p.MaxOutputBytes = maxOutput
		return p.Handle
	}, nil
}

// signingSecrets returns the secrets that sign the requests of --http, or nil if none are
// configured.
func (v *runCmd) signingSecrets() ([]target.Secret, error) {
	flag, text := "--http-secret", v.HTTPSecret
	if v.HTTPSecretFile != "" {
		content, err := os.ReadFile(v.HTTPSecretFile)
		if err != nil {
			return nil, fmt.Errorf("--http-secret-file: %w", err)
		}
		flag, text = "--http-secret-file", string(content)
	} else if text == "" {
		return nil, nil
	}
	secrets, err := target.ParseSecrets(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return secrets, nil
}

// findProgram returns the path of the named program, which it looks up in PATH as a shell does.
// shell is the path of a shell that every ordinary system has. If neither the program nor the shell
// exists, the error explains that the container image, such as hookstart's own, contains no other
// programs.
func findProgram(name, shell string) (path string, err error) {
	path, err = exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return "", &usageError{name + " is not executable", "chmod +x " + name}
	}
	text, hint := "there is no program "+name, "hookstart run --help"
	if !strings.Contains(name, "/") {
		text, hint = text+" on the PATH", "name its path"
		if _, here := os.Stat(name); here == nil {
			return "", &usageError{text, "write ./" + name + " for the one in this folder"}
		}
	}
	if _, err := os.Stat(shell); errors.Is(err, fs.ErrNotExist) {
		hint = "this image has no other program, not even a shell: post to a URL with --http, or " +
			"copy /hookstart into an image that has the program (COPY --from)"
	}
	return "", &usageError{text, hint}
}

// secondSignalContext returns a context that the second SIGINT or SIGTERM cancels. The first one
// lets running executions finish.
func secondSignalContext() (cut context.Context, stop func()) {
	cut, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-cut.Done():
				return
			}
		}
		cancel()
	}()
	return cut, func() {
		signal.Stop(signals)
		cancel()
	}
}
