package ingress

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/service"
	"github.com/hookstart/hookstart/shared/tlsfiles"
	"github.com/hookstart/hookstart/shared/webhook"
)

// Config configures an ingress. Its struct tags, and those of the types that it embeds, define the
// command-line flags and their defaults, which program.Parse fills in. A zero Config is not valid:
// for several fields, 0 does not select the default but is a value with its own meaning.
type Config struct {
	Addr string `help:"Address of the webhook endpoint." default:":8080"`

	service.OpsFlags
	service.NATSFlags
	service.ConnectFlags `set:"what=, and for what the executor creates there"`
	PublishFlags

	PublicURL string `help:"The URL under which senders reach this ingress, without /webhooks. Operators copy it." placeholder:"URL"`

	RequestFlags

	SecretsKeyFile string `help:"File with the keys that open senders' secrets, the same as the executor's: lines of id:base64(32 bytes). Empty: no sender with a secret can be used." type:"path"`

	service.TLSFlags `set:"speaks=--tls-key the endpoint speaks"`
	ReadFlags
	BufferFlags
	WaitFlags
	service.ShutdownFlags `set:"grace=35s"`
	service.LogFlags      `set:"line=request"`

	service.InProcessSettings `kong:"-"`

	// Publishing, if not nil, holds the number of messages that the ingress is currently
	// publishing. The ingress keeps it up to date for other services in the same process, which may
	// read it at any time.
	Publishing *atomic.Int64 `kong:"-"`
	// CheckRoom is called before each start message or rejection is published, so it must not
	// block. If it returns an error, the message is not published, and the request is refused as if
	// the stream were full, although NATS would still store the message. nil means no such check.
	CheckRoom func() error `kong:"-"`
	// OnReady is called once, as soon as the ingress accepts requests. It may be nil.
	OnReady func(ListenAddresses) `kong:"-"`
}

// hookstart-local also has the flags in the types below. They are divided into several types
// because the --help of hookstart-local lists them in a different order.

// PublishFlags limits how long a request waits for the stream.
type PublishFlags struct {
	PublishTimeout time.Duration `help:"How long to wait for the stream's confirmation before the answer is 503." default:"5s"`
}

// RequestFlags sets the maximum length of a request's body, and the headers that may contain its
// delivery ID.
type RequestFlags struct {
	MaxBodyBytes      int64    `help:"Largest body that is accepted, in bytes." default:"102400"`
	DeliveryIDHeaders []string `help:"Headers that may hold the delivery ID, after X-Webhook-Delivery-Id and X-Partner-Delivery, in order; the first one that is not empty counts." default:"X-GitHub-Delivery,X-Gitea-Delivery,X-Forgejo-Delivery,X-Gogs-Delivery,Webhook-Id,Svix-Id,Idempotency-Key,X-Shopify-Webhook-Id,Linear-Delivery,X-Atlassian-Webhook-Identifier,X-Request-UUID,I-Twilio-Idempotency-Token"`
}

// ReadFlags limits how long the body of a request may take to arrive, and how many bodies are read
// at the same time.
type ReadFlags struct {
	BodyTimeout time.Duration `help:"How long the body may take to arrive after the headers." default:"30s"`
	MinBodyRate int64         `help:"Minimum rate, in bytes per second, of a body that is declared longer than 16 KB, or of which 16 KB have arrived, measured after 5 s; a slower one gets 400. 0: no minimum." default:"1024"`
	MaxInFlight int64         `help:"Requests that are read and published at once; further ones get 503. One account may hold as many as are still free, so at most half while it is alone." default:"4096"`
}

// BufferFlags limits the memory that the bodies of all requests together may occupy.
type BufferFlags struct {
	MaxBufferedBytes int64 `help:"Bytes of bodies in memory at once; requests beyond that get 503. One account may hold as many as are still free." default:"268435456"`
}

// WaitFlags limits the number of requests whose responses wait until their executions have
// finished.
type WaitFlags struct {
	MaxWaiting int64 `help:"Requests whose answers wait for the end of their executions at once; further ones are answered 202 at once. One account may have 1000." default:"10000"`
}

// ListenAddresses holds the addresses on which an ingress listens. Callers need them when a port is
// configured as 0.
type ListenAddresses struct {
	Addr    string // address of the webhook endpoint
	OpsAddr string // address of the ops listener; "" if Ops is shared
}

// allDeliveryIDHeaders returns the headers that may hold the delivery ID, in order of precedence.
// The first two are built in; the others are configured.
func (c *Config) allDeliveryIDHeaders() []string {
	return append(webhook.PriorityDeliveryIDHeaders(), c.DeliveryIDHeaders...)
}

// Estimates of how many bytes longer a message is than its body. The additional bytes are the
// request line and headers (at most 32 KB) encoded as protobuf, IDs, and NATS headers. With many
// short parameters, the request line and headers grow to up to three times their length when they
// are encoded.
const (
	usualMessageOverhead = 64 << 10  // enough for an ordinary request
	maxMessageOverhead   = 160 << 10 // enough for any request
)

// Check returns an error that describes the first invalid setting of c in one human-readable line,
// or nil if all settings are valid. Run also calls Check.
func (c *Config) Check() error {
	positive := func(flag string, value int64) error {
		if value <= 0 {
			return fmt.Errorf("--%s must be more than 0", flag)
		}
		return nil
	}
	problems := []error{
		positive("max-body-bytes", c.MaxBodyBytes),
		positive("max-in-flight", c.MaxInFlight),
		positive("max-waiting", c.MaxWaiting),
		positive("connect-timeout", int64(c.ConnectTimeout)),
		positive("publish-timeout", int64(c.PublishTimeout)),
		positive("body-timeout", int64(c.BodyTimeout)),
		positive("shutdown-timeout", int64(c.ShutdownTimeout)),
	}
	if c.MinBodyRate < 0 {
		problems = append(problems, errors.New("--min-body-rate must be at least 0"))
	}
	if c.MaxBufferedBytes < c.MaxBodyBytes {
		problems = append(problems,
			errors.New("--max-buffered-bytes must be at least --max-body-bytes"))
	}
	problems = append(problems, tlsfiles.CheckFlags(c.TLSCert, c.TLSKey))
	for _, name := range c.DeliveryIDHeaders {
		if !webhook.IsHeaderName(name) {
			problems = append(problems,
				fmt.Errorf("--delivery-id-headers: %q is not a valid header name", name))
		}
	}
	problems = append(problems, program.CheckPublicURL("--public-url", c.PublicURL))
	for _, err := range problems {
		if err != nil {
			return err // report only the first error, as one clear line
		}
	}
	return nil
}
