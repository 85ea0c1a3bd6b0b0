// Package local runs all of hookstart in one process: an embedded NATS server, an
// executor with SQLite, and an ingress. It is for trying things out, for development,
// and for installations that one machine is enough for.
package local

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/runner/runnermetrics"
	"github.com/hookstart/hookstart/shared/tracing/otlp"
)

// Config configures hookstart-local. The struct tags define its flags.
type Config struct {
	DataDir      string `help:"Folder for all data." default:".hookstart" type:"path"`
	IngressAddr  string `help:"Address of the webhook endpoint." default:"127.0.0.1:8080"`
	ExecutorAddr string `help:"Address of the operators' API and the console." default:"127.0.0.1:8081"`
	NATSAddr     string `name:"nats-addr" help:"Address of the embedded NATS server. It asks for no password: keep it on loopback." default:"127.0.0.1:4222"`
	OpsAddr      string `help:"Address of metrics, /healthz, /readyz, /log-level and /debug/pprof." default:"127.0.0.1:9090"`
	AdminToken   string `help:"The token of the operators' API and the console. Empty: one is generated, kept in the data folder and printed." placeholder:"TOKEN"`
	PublicURL    string `name:"public-url" help:"The URL under which senders reach the webhook endpoint. Empty: http:// with --ingress-addr." placeholder:"URL"`
	NoDemo       bool   `help:"Do not create and run the demo workflow."`

	TLSCert         string `name:"tls-cert" help:"Certificate chain file; with --tls-key the webhook endpoint speaks HTTPS." type:"path"`
	TLSKey          string `name:"tls-key" help:"Private key file." type:"path"`
	ExecutorTLSCert string `name:"executor-tls-cert" help:"Certificate chain file; with --executor-tls-key the operators' API and the console speak HTTPS." type:"path"`
	ExecutorTLSKey  string `name:"executor-tls-key" help:"Private key file." type:"path"`

	OIDCIssuer           string   `name:"oidc-issuer" help:"URL of an OpenID Connect provider with which people sign in to the console. Empty: none." placeholder:"URL"`
	OIDCClientID         string   `name:"oidc-client-id" help:"The console's client ID at the provider." placeholder:"ID"`
	OIDCClientSecretFile string   `name:"oidc-client-secret-file" help:"File with the client secret. Empty: a public client." type:"path"`
	OIDCRole             []string `name:"oidc-role" help:"Who may do what: CLAIM=VALUE:ROLE, with ROLE viewer, editor or admin, and @ACCOUNT for access to one account only. Repeatable (in the environment, separated by ;); the first that matches counts. Example: groups=team-a:editor@acme" placeholder:"RULE" sep:";"`
	APIOrigins           []string `name:"api-origins" help:"Origins of web pages, comma-separated, that may call the operators' API with a key of their own: https://app.example.com" placeholder:"ORIGIN,…"`

	SecretsKeyFile string `help:"File with the keys that seal tokens and senders' secrets: lines of id:base64(32 bytes), of which the first seals and all open. Empty: secrets.key in the data folder, which is made." type:"path"`

	Plans       string `help:"JSON file with the plan catalog. Empty: the plans none, free, pro and ultra." type:"path"`
	DefaultPlan string `help:"The plan of new accounts that name none. Empty: ultra, which is unlimited; with --plans, none." placeholder:"PLAN"`

	MaxBodyBytes      int64         `help:"Largest body that is accepted, in bytes." default:"102400"`
	DeliveryIDHeaders []string      `help:"Headers that may hold the delivery ID, after X-Webhook-Delivery-Id and X-Partner-Delivery, in order; the first one that is not empty counts." default:"X-GitHub-Delivery,X-Gitea-Delivery,X-Forgejo-Delivery,X-Gogs-Delivery,Webhook-Id,Svix-Id,Idempotency-Key,X-Shopify-Webhook-Id,Linear-Delivery,X-Atlassian-Webhook-Identifier,X-Request-UUID,I-Twilio-Idempotency-Token"`
	BodyTimeout       time.Duration `help:"How long the body may take to arrive after the headers." default:"30s"`
	MinBodyRate       int64         `help:"Minimum rate, in bytes per second, of a body that is longer than 16 KB or of unknown length, measured after 5 s; a slower one gets 400. 0: no minimum." default:"1024"`
	MaxInFlight       int64         `help:"Requests that are read and published at once; further ones get 503. One account may hold as many as are still free, so at most half while it is alone." default:"4096"`
	MaxBufferedBytes  int64         `help:"Bytes of bodies in memory at once; requests beyond that get 503. One account may hold as many as are still free." default:"268435456"`
	PublishTimeout    time.Duration `help:"How long to wait for the stream's confirmation before the answer is 503." default:"5s"`

	DedupWindow      time.Duration `help:"How long a delivery ID is remembered." default:"24h"`
	StreamMaxAge     time.Duration `help:"How long messages stay in the stream; at least as long as --dedup-window." default:"168h"`
	StreamMaxBytes   int64         `help:"Maximum size of the stream, in bytes; when it is full, senders get 503. 0: no limit." default:"0"`
	ProgressMaxBytes int64         `help:"Maximum size of the stream of runners' reports, in bytes; when it is full, the oldest reports are dropped. Used when that stream is created; on a disk with less room it is smaller." default:"1073741824"`
	Retention        time.Duration `help:"How long execution records are kept." default:"720h"`
	AuditRetention   time.Duration `help:"How long is kept who changed what. 0: for ever." default:"9600h"`
	SyncAlways       bool          `help:"Sync every message to the disk before it is acknowledged. Slower, but acknowledged messages survive a power cut."`
	LogLevel         string        `help:"error, warn, info or debug. At info, every request is one line." default:"info"`

	// Out gets the text for people that says what was started. Required.
	Out io.Writer `kong:"-"`
	// Log replaces the program's own log.
	Log *logrus.Logger `kong:"-"`
	// OnReady is called once, when all is ready. It may be nil.
	OnReady func(Started) `kong:"-"`
}

// Started says what was started, and where.
type Started struct {
	IngressURL  string // without /webhooks
	ExecutorURL string
	NATSURL     string
	OpsURL      string
	ConsoleURL  string // signs in, once and within ten minutes, if AdminTokenMade
	AdminToken  string
	// AdminTokenMade says that the token was made here, and may be shown.
	AdminTokenMade bool
	WebhookURL     string // of the demo workflow; empty: there is none
}

// Run runs everything until the context ends. Its errors are for people: one line that
// says what to do.
func Run(ctx context.Context, c Config) error {
	log := c.Log
	if log == nil {
		var err error
		if log, err = ops.NewLog("hookstart-local", c.LogLevel); err != nil {
			return err
		}
	}
	forExecutor, forIngress, err := c.services()
	if err != nil {
		return err
	}
	if err := forIngress.Check(); err != nil { // the ingress itself would check it only after the executor is ready
		return err
	}
	adminToken, err := prepareFolder(c)
	if err != nil {
		return err
	}
	if forExecutor.SecretsKeyFile, err = prepareSecretsKey(c); err != nil {
		return err
	}
	forIngress.SecretsKeyFile = forExecutor.SecretsKeyFile
	// Listen on all addresses first: a port in use is reported before anything starts.
	ingressListener, err := ops.Listen(ctx, c.IngressAddr, "--ingress-addr")
	if err != nil {
		return err
	}
	defer func() { _ = ingressListener.Close() }()
	executorListener, err := ops.Listen(ctx, c.ExecutorAddr, "--executor-addr")
	if err != nil {
		return err
	}
	defer func() { _ = executorListener.Close() }()

	o := ops.New()
	o.Ready.NotReady("ingress", "starting")
	o.Ready.NotReady("executor", "starting")
	opsAddr, stopOps, err := o.Serve(ctx, c.OpsAddr, log)
	if err != nil {
		return err
	}
	defer stopOps()
	traces, stopTraces, err := otlp.Start(ctx, "hookstart-local", log)
	if err != nil {
		return err
	}
	defer stopTraces()
	o.Traces = traces
	server, err := startNATS(c, log)
	if err != nil {
		return err
	}
	defer server.Shutdown()

	started := Started{
		IngressURL: reachable(ingressListener.Addr(), c.TLSCert), ExecutorURL: reachable(executorListener.Addr(), c.ExecutorTLSCert),
		NATSURL: server.ClientURL(), OpsURL: "http://" + opsAddr, AdminToken: adminToken, AdminTokenMade: c.AdminToken == "",
	}
	if c.PublicURL == "" {
		c.PublicURL = started.IngressURL
	}
	var signInOnce string
	started.ConsoleURL = started.ExecutorURL + "/"
	if started.AdminTokenMade { // otherwise the output may go to a journal that others can read
		signInOnce = rand.Text()
		started.ConsoleURL = started.ExecutorURL + "/sign-in?once=" + signInOnce
	}
	inProcess := []nats.Option{server.InProcess()}
	forExecutor.Listener, forExecutor.NATSOptions, forExecutor.Ops, forExecutor.Log = executorListener, inProcess, o, log
	forExecutor.DatabaseURL = "sqlite:" + filepath.Join(c.DataDir, "executions.db")
	forExecutor.AdminToken, forExecutor.SignInOnce, forExecutor.PublicURL = adminToken, signInOnce, c.PublicURL
	forExecutor.SendersFirst, forExecutor.FreshNATS = true, true
	if !c.NoDemo {
		forExecutor.DemoQueue = demoQueue
	}
	forIngress.Listener, forIngress.NATSOptions, forIngress.Ops, forIngress.Log = ingressListener, inProcess, o, log
	forIngress.PublicURL = c.PublicURL

	recording := start(context.WithoutCancel(ctx), func(ctx context.Context, ready func()) error {
		forExecutor.OnReady = func(executor.Listening) { ready() }
		return executor.Run(ctx, forExecutor)
	})
	// It stops last: what the ingress has accepted is still recorded.
	defer recording.stop()
	if err := recording.waitReady(ctx); err != nil {
		return err
	}
	accepting := start(ctx, func(ctx context.Context, ready func()) error {
		forIngress.OnReady = func(ingress.Listening) { ready() }
		return ingress.Run(ctx, forIngress)
	})
	defer accepting.stop()
	if err := accepting.waitReady(ctx); err != nil {
		return err
	}

	recovering := start(ctx, func(ctx context.Context, _ func()) error {
		return recoverNATS(ctx, server, filepath.Join(c.DataDir, natsFolder), log)
	})
	defer recovering.stop()
	stopChecks := o.Watch(ctx, log, ops.Check{Part: "NATS storage", Ask: func(context.Context) error { return server.Health() }})
	defer stopChecks()

	if !c.NoDemo {
		if started.WebhookURL, err = makeDemo(ctx, started, c.ExecutorTLSCert); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the demo workflow: %w; start with --no-demo to go on without it", err)
		}
		observe := runnermetrics.New(o.Metrics)
		demo := start(ctx, func(ctx context.Context, _ func()) error { return runDemo(ctx, inProcess, observe, o.Traces, log) })
		defer demo.stop()
	}
	started.print(c.Out, c.DataDir)
	if c.OnReady != nil {
		c.OnReady(started)
	}
	select {
	case <-ctx.Done():
		accepting.stop()
		recording.stop()
	case <-accepting.ended:
	case <-recording.ended:
	case <-recovering.ended:
		if recovering.err != nil {
			return recovering.err
		}
		accepting.stop() // ctx has ended, too
		recording.stop()
	}
	if err := accepting.err; err != nil {
		return err
	}
	return recording.err
}

// service is a Run in the background.
type service struct {
	cancel context.CancelFunc
	ready  chan struct{}
	ended  chan struct{}
	err    error // once ended is closed
}

func start(ctx context.Context, run func(ctx context.Context, ready func()) error) *service {
	ctx, cancel := context.WithCancel(ctx)
	s := &service{cancel: cancel, ready: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = run(ctx, func() { close(s.ready) })
	}()
	return s
}

// waitReady returns when the service is ready, or with its error, or when ctx ends.
func (s *service) waitReady(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-s.ended:
		return s.err
	case <-ctx.Done():
		return nil // the caller sees that ctx has ended
	}
}

func (s *service) stop() {
	s.cancel()
	<-s.ended
}

// reachable is the URL under which this machine reaches a listener, which has TLS if it has a certificate.
func reachable(addr net.Addr, certFile string) string {
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

// print tells people what was started and how to use it.
func (s Started) print(out io.Writer, dataDir string) {
	if whole, err := filepath.Abs(dataDir); err == nil {
		dataDir = whole
	}
	// A configured token is not printed: it may give access to other installations, too.
	tokenVariable := program.EnvPrefix + "_ADMIN_TOKEN"
	token, shown, export := "$"+tokenVariable, "as you set it, by --admin-token or "+tokenVariable, program.EnvPrefix+"_API_URL="+s.ExecutorURL
	console := s.ConsoleURL + "\n             (sign in with the admin token)"
	if s.AdminTokenMade {
		console = s.ConsoleURL + "\n             (this link signs in once, within ten minutes; later, use the admin token)"
		token, shown = s.AdminToken, s.AdminToken
		export += " " + tokenVariable + "=" + s.AdminToken
	}
	demo := "There is no demo workflow (--no-demo). Make one in the console, or with bin/hookstart.\n"
	if s.WebhookURL != "" {
		demo = fmt.Sprintf(`Webhook URL of the workflow "demo":
  %s

Start an execution:
  curl -X POST '%s' -H 'Content-Type: application/json' -d '{"hello":"world"}'
`, s.WebhookURL, s.WebhookURL)
	}
	_, _ = fmt.Fprintf(out, `
hookstart is ready.

%s
See the result:
  curl -H "Authorization: Bearer %s" %s/api/v1/executions
or with the command line:
  export %s
  bin/hookstart execution list

Console      %s
Admin token  %s
NATS         %s
Metrics      %s/metrics
Data         %s

`, demo, token, s.ExecutorURL, export, console, shown, s.NATSURL, s.OpsURL, dataDir)
}
