package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hookstart/hookstart/executor/internal/record/recorder"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/service"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/tlsfiles"
)

// SkippingConsumer identifies a runner group's consumer that has skipped start messages.
type SkippingConsumer = recorder.SkippingConsumer

// Config configures an executor. Its struct tags, and those of the embedded types, define the
// command-line flags and their defaults; program.Parse fills in the fields. Do not use a zero
// Config: in several fields, 0 is a value with its own meaning and does not select the default.
type Config struct {
	Addr string `help:"Address of the operators' API and the console." default:"127.0.0.1:8081"`

	service.OpsFlags `set:"ops_addr=127.0.0.1:9091"`
	service.TLSFlags `set:"speaks=--tls-key the operators' API and the console speak"`

	service.NATSFlags

	DatabaseURL string `name:"database-url" help:"sqlite:PATH, or postgres://USER:PASSWORD@HOST/DATABASE." default:"sqlite:hookstart.db"`

	service.ConnectFlags `set:"what= and the database"`

	AdoptDatabase bool `help:"Let a database without an identity join the installation whose registry is in NATS: for one start, after the installation's database was lost. Without it the executor refuses to start with such a database."`

	AdminToken string `help:"The token of the operators' API and the console, at least 16 characters. Required." placeholder:"TOKEN"`
	PublicURL  string `name:"public-url" help:"The URL under which senders reach the ingress, without /webhooks. Operators copy it. Empty: the ingress's --public-url." placeholder:"URL"`

	SignInFlags
	PlanFlags

	SecretsKeyFile string `help:"File with the keys that seal tokens and senders' secrets in NATS: lines of id:base64(32 bytes), of which the first seals and all open. hookstart admin secrets-key makes one. Empty: tokens are stored in clear, and no sender's secret can be set." type:"path"`

	Replicas int `help:"Replicas of the stream and the buckets when they are created: 1, or 3 on a cluster." default:"1"`

	StreamFlags
	DedupFlags `set:"window=; at most --stream-max-age"`

	RegistryCopy string   `help:"API prefix of the NATS account that holds a copy of the registry, for ingresses that may not read the original: FEED.API with the configuration of deploy/nats. Empty: no copy." placeholder:"PREFIX"`
	RunnerGroups []string `help:"Runner groups whose consumers the executor creates, for runners that may not create their own; comma-separated." placeholder:"QUEUE/GROUP"`

	RetentionFlags
	service.ShutdownFlags `set:"grace=10s"`
	service.LogFlags      `set:"line=batch"`

	service.InProcessSettings `kong:"-"`

	// Publishing is the number of requests whose messages an ingress in this process is currently
	// storing. During a burst of requests, when the number is high, the recorder waits so that the
	// ingress can respond first. nil means that this process has no ingress.
	Publishing *atomic.Int64 `kong:"-"`
	// FreshNATS tells the executor that the caller has just started the NATS servers, so no ingress
	// can still be using an earlier registry. If it is false, the executor confirms changes made in
	// its first 3 s only when those 3 s have passed.
	FreshNATS bool `kong:"-"`
	// SkippingConsumers returns the runners' consumers that have skipped messages: NATS lost their
	// state, and they were recreated after the last message of their stream. The executor delivers
	// the skipped messages to the runners again, and then calls OnRedelivered. nil means that no
	// consumer has skipped messages.
	SkippingConsumers func() ([]SkippingConsumer, error) `kong:"-"`
	// OnRedelivered is called when a consumer's skipped messages have been delivered again. After
	// that, SkippingConsumers must no longer return the consumer. OnRedelivered is required if
	// SkippingConsumers is set.
	OnRedelivered func(SkippingConsumer) error `kong:"-"`
	// OpenPostgres opens the database at a postgres:// URL and migrates it. It retries while the
	// server is unavailable, until the second context (starting) is done; only ctx limits the
	// migration. nil means that the program does not support PostgreSQL. Package withpostgres sets
	// the field, so that this package need not import the driver and hookstart-local can be linked
	// without it. Code outside the module cannot set it, because Store is internal.
	OpenPostgres func(ctx, starting context.Context, url string) (store.Store, error) `kong:"-"`
	// OneTimeSignInNonce is the secret in the sign-in link that the process prints at startup. The
	// link opens the console without the admin token, but only once, and only within ten minutes of
	// the start. "" means that there is no such link.
	OneTimeSignInNonce string `kong:"-"`
	// DemoQueue is the queue of the demo runner in this process. The console mentions the runner on
	// the pages of workflows that use this queue. "" means that there is no demo runner.
	DemoQueue string `kong:"-"`
	// OnReady is called once, when the API is being served and the recorder is running. nil means
	// that the caller does not need to know.
	OnReady func(ListenAddresses) `kong:"-"`
}

// The flags below are shared with hookstart-local. They are split into several types because
// hookstart-local lists them in a different order in its --help. Where the help texts of the two
// programs differ, they contain kong variables, which each program sets with the struct tag "set".

// SignInFlags sets who may sign in to the console besides holders of the admin token, and which web
// pages may call the API. For sign-in with OpenID Connect, the console's redirect URI must be
// registered with the identity provider: it is the console's address followed by /sign-in/callback.
type SignInFlags struct {
	OIDCIssuer           string        `name:"oidc-issuer" help:"URL of an OpenID Connect provider with which people sign in to the console. Empty: none." placeholder:"URL"`
	OIDCClientID         string        `name:"oidc-client-id" help:"The console's client ID at the provider." placeholder:"ID"`
	OIDCClientSecretFile string        `name:"oidc-client-secret-file" help:"File with the client secret. Empty: a public client." type:"path"`
	OIDCRole             []string      `name:"oidc-role" help:"Who may do what: CLAIM=VALUE:ROLE, with ROLE viewer, editor or admin, and @ACCOUNT for access to one account only. Repeatable (in the environment, separated by ;); the first that matches counts${unmatched=, and whom none matches has no access}. Example: groups=team-a:editor@acme" placeholder:"RULE" sep:";"`
	OIDCSession          time.Duration `name:"oidc-session" help:"How long a sign-in through the provider lasts, at most 12h. Then the provider is asked again who the person is; that asks nobody for a password who is still signed in there." default:"1h"`
	APIOrigins           []string      `name:"api-origins" help:"Origins of web pages, comma-separated, that may call the operators' API with a key of their own: https://app.example.com" placeholder:"ORIGIN,…"`
}

// PlanFlags sets the plan catalog and the default plan of accounts. The kong variable "without"
// completes the help text of DefaultPlan: it says what happens to an account that names no plan if
// there is no default plan.
type PlanFlags struct {
	Plans       string `help:"JSON file with the plan catalog. Empty: the plans none, free, pro and ultra." type:"path"`
	DefaultPlan string `help:"The plan of new accounts that name none. Empty: ${without=they must name one}." placeholder:"PLAN"`
}

// StreamFlags sets the limits of the streams. Programs can add text to the help of StreamMaxAge
// through the kong variable "age".
type StreamFlags struct {
	StreamMaxAge   time.Duration `help:"How long messages stay in the stream${age=}." default:"168h"`
	StreamMaxBytes int64         `help:"Maximum size of the stream, in bytes; when it is full, senders get 503. 0: no limit." default:"0"`
	// ProgressMaxBytes is used only to create the stream of reports. It does not change an existing
	// stream.
	ProgressMaxBytes int64 `help:"Maximum size of the stream of runners' reports, in bytes; when it is full, the oldest reports are dropped. Used when that stream is created; on a disk with less room it is smaller." default:"1073741824"`
}

// DedupFlags sets how long a delivery ID is remembered. Programs can add text to its help through
// the kong variable "window".
type DedupFlags struct {
	DedupWindow time.Duration `help:"How long a delivery ID is remembered${window=}." default:"24h"`
}

// RetentionFlags sets how long the database keeps records.
type RetentionFlags struct {
	Retention      time.Duration `help:"How long execution records are kept." default:"720h"`
	AuditRetention time.Duration `help:"How long is kept who changed what. 0: for ever." default:"9600h"`
}

// ListenAddresses holds the addresses on which an executor listens. If a port is configured as 0,
// they show the port that the system has chosen.
type ListenAddresses struct {
	Addr    string // address of the operators' API and the console
	OpsAddr string // address of the ops listener; "" if Config.Ops is set, which has its own
}

func (c *Config) streamSettings() stream.Settings {
	return stream.Settings{
		Replicas:         c.Replicas,
		MaxAge:           c.StreamMaxAge,
		DedupWindow:      c.DedupWindow,
		MaxBytes:         c.StreamMaxBytes,
		ProgressMaxBytes: c.ProgressMaxBytes,
	}
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
		return errors.New("--admin-token (or HOOKSTART_ADMIN_TOKEN) is required: it opens the " +
			"operators' API and the console")
	case strings.TrimSpace(c.AdminToken) != c.AdminToken:
		return errors.New("--admin-token must not begin or end with white space: no client could " +
			"send it")
	case !strings.HasPrefix(c.DatabaseURL, sqliteURLPrefix) && !isPostgres(c.DatabaseURL):
		return errors.New("--database-url must be sqlite:PATH or postgres://…")
	case isPostgres(c.DatabaseURL) && c.OpenPostgres == nil:
		return errors.New("--database-url must be sqlite:PATH: this program has no driver for " +
			"PostgreSQL")
	case c.ConnectTimeout <= 0 || c.ShutdownTimeout <= 0:
		return errors.New("--connect-timeout and --shutdown-timeout must be more than 0")
	case c.Retention < time.Minute:
		return fmt.Errorf("--retention must be at least 1m, not %s", c.Retention)
	case c.AuditRetention < 0:
		return fmt.Errorf("--audit-retention must not be negative: %s", c.AuditRetention)
	}
	if err := program.CheckPublicURL("--public-url", c.PublicURL); err != nil {
		return err
	}
	if err := tlsfiles.CheckFlags(c.TLSCert, c.TLSKey); err != nil {
		return err
	}
	if _, err := c.runnerGroups(); err != nil {
		return err
	}
	if err := c.checkAPIOrigins(); err != nil {
		return err
	}
	if _, err := c.oidcProvider(); err != nil {
		return err
	}
	return c.streamSettings().Validate()
}
