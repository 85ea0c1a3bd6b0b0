package executor

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/stream"
)

// Config is all that an executor can be told. The tags are the flags of the program;
// a zero Config is not valid, the defaults are in the tags.
type Config struct {
	Addr    string `help:"Address of the operators' API and the console." default:"127.0.0.1:8081"`
	OpsAddr string `help:"Address of metrics, /healthz, /readyz, /log-level and /debug/pprof. Not for the public." default:"127.0.0.1:9091"`

	NATSURL        string        `name:"nats-url" help:"NATS servers, comma-separated." default:"nats://127.0.0.1:4222"`
	NATSCreds      string        `name:"nats-creds" help:"Credentials file for NATS." type:"path"`
	NATSCA         string        `name:"nats-ca" help:"File with the certificate authority of the NATS servers." type:"path"`
	DatabaseURL    string        `name:"database-url" help:"sqlite:PATH, or postgres://USER:PASSWORD@HOST/DATABASE." default:"sqlite:hookstart.db"`
	ConnectTimeout time.Duration `help:"How long NATS and the database are waited for at start." default:"30s"`

	AdminToken string `help:"The token of the operators' API and the console, at least 16 characters. Required." placeholder:"TOKEN"`
	PublicURL  string `name:"public-url" help:"The URL under which senders reach the ingress, without /webhooks: what operators copy. Empty: what the ingress was told." placeholder:"URL"`
	Plans      string `help:"File with the plan catalog, JSON. Empty: none, free, pro and ultra." type:"path"`

	Replicas       int           `help:"Replicas of the stream and the buckets when they are created: 1, or 3 on a cluster." default:"1"`
	StreamMaxAge   time.Duration `help:"How long messages stay in the stream." default:"168h"`
	StreamMaxBytes int64         `help:"Size of the stream at most, in bytes; past it senders get 503. 0: no bound." default:"0"`
	// ProgressMaxBytes counts when the stream of reports is made.
	ProgressMaxBytes int64         `help:"Size of the stream of runners' reports at most, in bytes; past it the oldest reports are dropped. It counts when that stream is made; a disk with less room gets a smaller one." default:"1073741824"`
	DedupWindow      time.Duration `help:"How long a delivery ID is remembered; at most --stream-max-age." default:"24h"`
	RegistryCopy     string        `help:"API prefix of the NATS account for the registry's copy, which ingresses read where they may not touch the original: FEED.API with the configuration of deploy/nats. Empty: there is none." placeholder:"PREFIX"`
	RunnerGroups     []string      `help:"Groups of workflow runners whose consumers are created, for runners that may not create their own; comma-separated." placeholder:"QUEUE/GROUP"`
	Retention        time.Duration `help:"How long records are kept." default:"720h"`

	ShutdownTimeout time.Duration `help:"How long requests in flight may take to finish after SIGTERM." default:"10s"`
	LogLevel        string        `help:"error, warn, info or debug. At info, every batch is one line." default:"info"`

	// SendersFirst makes the recorder rest while requests come in bursts: for a process that
	// answers senders, too. Records are a little later then, and never much.
	SendersFirst bool `kong:"-"`
	// NATSOptions are added to the connection: hookstart-local connects in process.
	NATSOptions []nats.Option `kong:"-"`
	// Listener is listened on instead of Addr.
	Listener net.Listener `kong:"-"`
	// Log replaces the program's own log. Its level wins over LogLevel.
	Log *logrus.Logger `kong:"-"`
	// Ops is shared with other services of this process, which serves it: then there is no
	// ops listener of the executor's own.
	Ops *ops.Ops `kong:"-"`
	// SignInOnce signs in to the console without the admin token, once and within ten minutes: a
	// secret for a link that is shown to whoever started the process. Empty: nothing does.
	SignInOnce string `kong:"-"`
	// DemoQueue is the queue that the demo runner of this process takes: the console says so
	// of its workflows. Empty: there is none.
	DemoQueue string `kong:"-"`
	// OnReady is called once, when the API answers and the recorder runs. It may be nil.
	OnReady func(Listening) `kong:"-"`
}

// Listening says where an executor listens: with port 0 only it knows.
type Listening struct {
	Addr    string // of the operators' API and the console
	OpsAddr string // empty: Ops is shared
}

func (c *Config) streamSettings() stream.Settings {
	return stream.Settings{Replicas: c.Replicas, MaxAge: c.StreamMaxAge, DedupWindow: c.DedupWindow, MaxBytes: c.StreamMaxBytes, ProgressMaxBytes: c.ProgressMaxBytes}
}

func (c *Config) runnerGroups() ([]stream.RunnerGroup, error) {
	var groups []stream.RunnerGroup
	for _, text := range c.RunnerGroups {
		group, err := stream.ParseRunnerGroup(text)
		if err != nil {
			return nil, fmt.Errorf("--runner-groups: %w", err)
		}
		groups = append(groups, group)
	}
	return groups, nil
}

func (c *Config) validate() error {
	switch {
	case strings.TrimSpace(c.AdminToken) == "":
		return errors.New("--admin-token (or HOOKSTART_ADMIN_TOKEN) is required: it opens the operators' API and the console")
	case strings.TrimSpace(c.AdminToken) != c.AdminToken:
		return errors.New("--admin-token must not begin or end with white space: no client could send it")
	case !strings.HasPrefix(c.DatabaseURL, sqlitePrefix) && !isPostgres(c.DatabaseURL):
		return errors.New("--database-url must be sqlite:PATH or postgres://…")
	case c.ConnectTimeout <= 0 || c.ShutdownTimeout <= 0:
		return errors.New("--connect-timeout and --shutdown-timeout must be more than 0")
	case c.Retention < time.Minute:
		return fmt.Errorf("--retention must be at least 1m, not %s", c.Retention)
	}
	if err := program.CheckURL("--public-url", c.PublicURL); err != nil {
		return err
	}
	if _, err := c.runnerGroups(); err != nil {
		return err
	}
	return c.streamSettings().Validate()
}
