// Package local runs all of hookstart in one process: an embedded NATS server, an executor with
// SQLite, and an ingress. It is meant for trying hookstart out, for development, and for
// installations that need only one machine.
package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/lifecycle"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/otlp"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/runner/runnermetrics"
	"github.com/hookstart/hookstart/shared/service"
)

// Config configures hookstart-local. Its flags are defined by its struct tags and those of its
// embedded types. The embedded types of the packages ingress and executor define the flags that
// hookstart-local shares with these services.
type Config struct {
	DataDir      string `help:"Folder for all data. A path that does not begin with / is below the folder in which the program is started." default:".hookstart" type:"path"`
	IngressAddr  string `help:"Address of the webhook endpoint." default:"127.0.0.1:8080"`
	ExecutorAddr string `help:"Address of the operators' API and the console." default:"127.0.0.1:8081"`
	NATSAddr     string `name:"nats-addr" help:"Address of the embedded NATS server. It asks for no password: keep it on loopback." default:"127.0.0.1:4222"`

	service.OpsFlags `set:"ops_note="`

	AdminToken string `help:"The token of the operators' API and the console. Empty: one is generated, kept in the data folder and printed." placeholder:"TOKEN"`
	PublicURL  string `name:"public-url" help:"The URL under which senders reach the webhook endpoint. Empty: http:// with --ingress-addr." placeholder:"URL"`
	NoDemo     bool   `help:"Do not create and run the demo workflow."`

	// TLSFlags holds the flags for the certificate of the webhook endpoint.
	service.TLSFlags `set:"speaks=--tls-key the webhook endpoint speaks"`
	// ExecutorTLS holds the flags for the certificate of the operators' API and the console.
	ExecutorTLS service.TLSFlags `embed:"" prefix:"executor-" set:"speaks=--executor-tls-key the operators' API and the console speak"`

	executor.SignInFlags `set:"unmatched="`

	SecretsKeyFile string `help:"File with the keys that seal tokens and senders' secrets: lines of id:base64(32 bytes), of which the first seals and all open. Empty: secrets.key in the data folder, which is made." type:"path"`

	executor.PlanFlags `set:"without=ultra, the largest; with --plans, none"`

	ingress.RequestFlags
	ingress.ReadFlags
	ingress.WaitFlags
	ingress.BufferFlags
	ingress.PublishFlags

	executor.DedupFlags
	executor.StreamFlags `set:"age=; at least as long as --dedup-window"`
	executor.RetentionFlags

	SyncAlways bool `help:"Sync every message to the disk before it is acknowledged. Slower, but acknowledged messages survive a power cut."`

	service.LogFlags `set:"line=request"`

	// Out receives the text that tells the user which services were started. nil means stdout.
	Out io.Writer `kong:"-"`
	// NATSMaxStore is the maximum total size of all streams in bytes. 0 means three quarters of the
	// disk space that is free when the NATS server starts.
	NATSMaxStore int64 `kong:"-"`
	// Log replaces the program's logger. nil means that Run creates one.
	Log *logrus.Logger `kong:"-"`
	// OnReady is called once everything is ready. It may be nil.
	OnReady func(StartedServices) `kong:"-"`
}

// StartedServices describes the services that were started and their addresses.
type StartedServices struct {
	IngressURL  string // base URL of the webhook endpoint, without /webhooks
	ExecutorURL string // URL of the operators' API and the console
	NATSURL     string // URL of the embedded NATS server
	OpsURL      string // URL of metrics, /healthz and /readyz
	ConsoleURL  string // console URL; signs in once, within ten minutes, if the token was generated
	AdminToken  string // the valid token: the configured one, or the one stored in the data folder
	// AdminTokenGenerated reports whether the token was generated rather than configured. Only a
	// generated token may be printed.
	AdminTokenGenerated bool
	WebhookURL          string // webhook URL of the demo workflow; "" if there is none
	// tokenFile is the path of the file with the generated token. It is set only if the output goes
	// to the journal, which other users can read. The instructions then name this file, instead of
	// containing the token and a link that signs in.
	tokenFile string
}

// Run runs everything until ctx ends. Its errors are single lines that tell users what to do.
func Run(ctx context.Context, c Config) error {
	if c.Out == nil {
		c.Out = os.Stdout
	}
	log, started := c.Log, func() {}
	if log == nil {
		var err error
		if log, err = ops.NewLogger("hookstart-local", c.LogLevel); err != nil {
			return err
		}
		if level := log.GetLevel(); level == logrus.InfoLevel && !c.NoDemo {
			// Until everything is ready, log only warnings and errors, so that the first thing a
			// newcomer sees is the instructions.
			log.SetLevel(logrus.WarnLevel)
			started = func() { log.SetLevel(level) }
		}
	}
	forExecutor, forIngress, err := c.serviceConfigs()
	if err != nil {
		return err
	}
	if err := forIngress.Check(); err != nil {
		// Report an invalid configuration of the ingress now. The ingress starts only once the
		// executor is ready, and would report it late.
		return err
	}
	isNew := isNewFolder(c.DataDir)
	adminToken, err := prepareFolderAndToken(c)
	if err != nil {
		return err
	}
	if forExecutor.SecretsKeyFile, err = prepareSecretsKey(c); err != nil {
		return err
	}
	forIngress.SecretsKeyFile = forExecutor.SecretsKeyFile
	l := &installation{
		config: c, log: log, telemetry: ops.New(), executorConfig: forExecutor,
		ingressConfig: forIngress,
	}
	defer l.Stop()
	if err := l.listenAndStartTelemetry(ctx); err != nil {
		return err
	}
	if l.natsServer, err = startNATS(c, log); err != nil {
		return err
	}
	l.Add(l.natsServer.Shutdown)
	l.Go(context.WithoutCancel(ctx), l.natsServer.WatchRoom)
	l.configureServices(adminToken)
	for _, step := range []func(context.Context) error{l.startServices, l.watchNATS, l.startDemo} {
		if err := step(ctx); ctx.Err() != nil {
			return nil // canceled during the start, which is not a failure
		} else if err != nil {
			return err
		}
	}
	started()
	l.started.printInstructions(c.Out, c.DataDir, isNew)
	if c.OnReady != nil {
		c.OnReady(l.started)
	}
	return l.WaitAndStop(ctx)
}

// installation holds everything that runs in the process. Run calls its methods in the order of
// their declarations, because each method sets fields that the later ones use.
type installation struct {
	lifecycle.Components
	config         Config
	log            *logrus.Logger
	telemetry      *ops.Ops
	executorConfig executor.Config
	ingressConfig  ingress.Config

	opsAddr    string
	natsServer *embednats.Server
	started    StartedServices
}

// listenAndStartTelemetry opens all listeners before anything is started, so that a port that is
// already in use is reported first.
func (l *installation) listenAndStartTelemetry(ctx context.Context) (err error) {
	c := l.config
	for _, one := range []struct {
		listener   *net.Listener
		addr, flag string
	}{
		{&l.ingressConfig.Listener, c.IngressAddr, "--ingress-addr"}, {
			&l.executorConfig.Listener, c.ExecutorAddr, "--executor-addr",
		},
	} {
		listener, err := ops.Listen(ctx, one.addr, one.flag)
		if err != nil {
			return err
		}
		l.Add(func() { _ = listener.Close() })
		*one.listener = listener
	}
	l.telemetry.Readiness.MarkNotReady("ingress", "starting")
	l.telemetry.Readiness.MarkNotReady("executor", "starting")
	var stopOps, stopTraces func()
	if l.opsAddr, stopOps, err = l.telemetry.StartServer(ctx, c.OpsAddr, l.log); err != nil {
		return err
	}
	l.Add(stopOps)
	l.telemetry.TracerProvider, stopTraces, err = otlp.Start(ctx, "hookstart-local", l.log)
	if err != nil {
		return err
	}
	l.Add(stopTraces)
	return nil
}

// configureServices fills in l.started and completes the configurations of the services.
func (l *installation) configureServices(adminToken string) {
	c := &l.config
	l.started = StartedServices{
		IngressURL:          localURL(l.ingressConfig.Listener.Addr(), c.TLSCert),
		ExecutorURL:         localURL(l.executorConfig.Listener.Addr(), c.ExecutorTLS.TLSCert),
		NATSURL:             l.natsServer.ClientURL(),
		OpsURL:              "http://" + l.opsAddr,
		AdminToken:          adminToken,
		AdminTokenGenerated: c.AdminToken == "",
	}
	l.started.ConsoleURL = l.started.ExecutorURL + "/"
	switch {
	case !l.started.AdminTokenGenerated:
	case isJournal(c.Out): // other users can read the journal, so print no token and no link
		l.started.tokenFile = adminTokenFile(c.DataDir)
	default:
		l.executorConfig.OneTimeSignInNonce = rand.Text()
		l.started.ConsoleURL += "sign-in?once=" + l.executorConfig.OneTimeSignInNonce
	}
	inProcess, publicURL := []nats.Option{l.natsServer.InProcess()},
		cmp.Or(c.PublicURL, l.started.IngressURL)
	l.executorConfig.NATSOptions, l.executorConfig.PublicURL = inProcess, publicURL
	l.executorConfig.Ops, l.executorConfig.Log = l.telemetry, l.log
	l.executorConfig.DatabaseURL = "sqlite:" + filepath.Join(c.DataDir, "executions.db")
	l.executorConfig.AdminToken = adminToken
	l.executorConfig.Publishing, l.executorConfig.FreshNATS = new(atomic.Int64), true
	l.executorConfig.SkippingConsumers = func() ([]executor.SkippingConsumer, error) {
		return skippingConsumers(c.DataDir)
	}
	l.executorConfig.OnRedelivered = func(consumer executor.SkippingConsumer) error {
		return forgetSkippingConsumer(c.DataDir, consumer)
	}
	if !c.NoDemo {
		l.executorConfig.DemoQueue = demoQueue
	}
	l.ingressConfig.NATSOptions, l.ingressConfig.PublicURL = inProcess, publicURL
	l.ingressConfig.Ops, l.ingressConfig.Log = l.telemetry, l.log
	l.ingressConfig.Publishing = l.executorConfig.Publishing
	l.ingressConfig.CheckRoom = l.natsServer.CheckRoom
}

// startServices starts the executor and then the ingress, and waits until both are ready. The
// executor stops last, so it still records everything that the ingress has accepted.
func (l *installation) startServices(ctx context.Context) error {
	recording := l.StartRequired(context.WithoutCancel(ctx),
		func(ctx context.Context, ready func()) error {
			l.executorConfig.OnReady = func(executor.ListenAddresses) { ready() }
			return executor.Run(ctx, l.executorConfig)
		})
	if err := recording.AwaitReady(ctx); err != nil {
		return err
	}
	accepting := l.StartRequired(ctx, func(ctx context.Context, ready func()) error {
		l.ingressConfig.OnReady = func(ingress.ListenAddresses) { ready() }
		return ingress.Run(ctx, l.ingressConfig)
	})
	return accepting.AwaitReady(ctx)
}

// watchNATS watches the embedded server. It restarts the server after its disk was full, and makes
// /readyz report an error while the server cannot store anything.
func (l *installation) watchNATS(ctx context.Context) error {
	checker := newHealthChecker(l.natsServer.Health)
	l.StartRequired(ctx, func(ctx context.Context, _ func()) error {
		return superviseNATS(ctx, l.natsServer, checker,
			filepath.Join(l.config.DataDir, natsFolder),
			l.log)
	})
	l.Add(l.telemetry.Watch(ctx, l.log, ops.Check{
		Component: "NATS storage",
		Probe: func(ctx context.Context) error {
			if err := l.natsServer.CheckRoom(); err != nil {
				return err
			}
			return checker.check(ctx)
		},
	}))
	return nil
}

// startDemo creates and runs the demo workflow, if it is enabled.
func (l *installation) startDemo(ctx context.Context) (err error) {
	if l.config.NoDemo {
		return nil
	}
	l.started.WebhookURL, err = createDemoWorkflow(ctx, l.started, l.config.ExecutorTLS.TLSCert)
	if err != nil {
		return fmt.Errorf("the demo workflow: %w; start with --no-demo to go on without it", err)
	}
	observe := runnermetrics.New(l.telemetry.Metrics)
	l.Go(ctx, func(ctx context.Context) {
		err := runDemoRunner(ctx, l.executorConfig.NATSOptions, observe, l.telemetry.TracerProvider,
			l.log)
		if err != nil {
			l.log.WithError(err).Warn("the runner of the demo workflow has ended")
		}
	})
	return nil
}

// isJournal reports whether out is systemd's journal. If it is, JOURNAL_STREAM has the device and
// the inode of out. That the variable is set proves nothing, because the children of a service
// inherit it even if their output goes elsewhere.
func isJournal(out io.Writer) bool {
	journal := os.Getenv("JOURNAL_STREAM")
	file, ok := out.(*os.File)
	if !ok || journal == "" {
		return false
	}
	info, err := file.Stat()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && journal == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

// localURL returns the URL for reaching a listener from this machine. The scheme is https if
// certFile is not empty.
func localURL(addr net.Addr, certFile string) string {
	scheme := "http://"
	if certFile != "" {
		scheme = "https://"
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return scheme + addr.String()
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, fmt.Sprint(tcp.Port))
}

// printInstructions tells the user which services were started and how to use them. isNew reports
// whether the data folder was created by this start.
func (s StartedServices) printInstructions(out io.Writer, dataDir string, isNew bool) {
	if whole, err := filepath.Abs(dataDir); err == nil {
		dataDir = whole
	}
	if isNew {
		dataDir += " (new; --data-dir names another folder)"
	}
	// A configured token is not printed, because it may also be valid for other installations.
	tokenVariable := program.EnvPrefix + "_ADMIN_TOKEN"
	token, shown, export := "$"+tokenVariable, "as you set it, by --admin-token or "+tokenVariable,
		program.EnvPrefix+"_API_URL="+s.ExecutorURL+" "+program.EnvPrefix+"_NATS_URL="+s.NATSURL
	console := s.ConsoleURL + "\n             (sign in with the admin token)"
	switch {
	case s.tokenFile != "":
		shown = "in " + s.tokenFile
		token = "$(cat '" + s.tokenFile + "')"
		export += " " + tokenVariable + "=\"" + token + "\""
	case s.AdminTokenGenerated:
		console = s.ConsoleURL +
			"\n             (this link signs in once, within ten minutes; later, use the admin " +
			"token)"
		token, shown = s.AdminToken, s.AdminToken
		export += " " + tokenVariable + "=" + s.AdminToken
	}
	hookstart := hookstartCommand()
	begin := fmt.Sprintf(`There is no demo workflow (--no-demo). Make a workflow and start an execution:
  export %[1]s
  %[2]s account put acme
  %[2]s workflow put orders --account acme
  %[2]s workflow activate orders
  %[2]s trigger send orders --data '{"hello":"world"}'

See the result:
  %[2]s execution list
or without the command line:
  curl -H "Authorization: Bearer %[3]s" %[4]s/api/v1/executions

Run a program of yours for each execution, here cat:
  %[2]s run -- cat
`, export, hookstart, token, s.ExecutorURL)
	if s.WebhookURL != "" {
		begin = fmt.Sprintf(`Webhook URL of the workflow "demo":
  %[1]s

Start an execution:
  curl -X POST '%[1]s' -H 'Content-Type: application/json' -d '{"hello":"world"}'

See the result:
  curl -H "Authorization: Bearer %[2]s" %[3]s/api/v1/executions
or with the command line:
  export %[4]s
  %[5]s execution list
`, s.WebhookURL, token, s.ExecutorURL, export, hookstart)
	}
	_, _ = fmt.Fprintf(out, `
hookstart is ready.

%s
Console      %s
Admin token  %s
NATS         %s
Metrics      %s/metrics
Data         %s

`, begin, console, shown, s.NATSURL, s.OpsURL, dataDir)
}
