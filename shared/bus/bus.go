// Package bus connects Hookstart's programs to NATS.
package bus

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"
)

// Options configures a connection to NATS. URL, ConnectTimeout and Log are required.
type Options struct {
	// URL is a comma-separated list of the servers' URLs.
	URL string
	// Name is the client name under which the NATS server's monitoring lists the connection.
	Name string
	// ConnectTimeout limits how long Connect waits for the first connection. A connection that is
	// lost later reconnects indefinitely.
	ConnectTimeout time.Duration
	// CredsFile is the path of a file with credentials: the seed of an NKey, or a JWT and a seed.
	// "" means that the connection needs no credentials.
	CredsFile string
	// CAFile is the path of a PEM file with the CA certificates to trust. "" means the system's
	// CAs.
	CAFile string
	// Extra holds further options of nats.go, such as nats.InProcessServer.
	Extra []nats.Option
	// Log receives a line if Connect has to wait, and a line for each later event of the
	// connection, such as a disconnect or a reconnect. It is required.
	Log logrus.FieldLogger
	// OnClosed is called once if the connection is closed for good, although the program did not
	// call its Close method. The connection does not reconnect, so the program must be restarted.
	// The error is the reason. If OnClosed is nil, the connection's end is only logged.
	OnClosed func(error)
}

// ErrClosed means that a connection was closed for good, although the program did not call its
// Close method.
var ErrClosed = errors.New("the connection to NATS is closed for good")

// Connect waits for a server and connects to it. If it has to wait for longer than a second, it
// logs once what it is waiting for. The connection does not buffer messages while it is
// disconnected: otherwise, a message that was reported to the caller as failed would still be
// stored after the reconnect.
//
// The connection reconnects indefinitely, with one exception. If the server reports an error that
// nats.go does not know, such as a violation of a max_payload that has been lowered, nats.go closes
// the connection for good. See Options.OnClosed.
func Connect(ctx context.Context, o Options) (*nats.Conn, error) {
	if err := checkURLs(o.URL); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
	defer cancel()
	options := append([]nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		// Without this option, nats.go closes the connection for good if a server rejects the
		// credentials twice, even if the server accepts them again a moment later.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		nats.Timeout(2 * time.Second),
		nats.SetCustomDialer(dialer{}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil if the program called Close
				o.Log.WithError(err).Warn("NATS connection lost")
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { o.Log.Info("NATS connection is back") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			o.Log.WithError(err).Warn("NATS reports an error")
		}),
		nats.NoCallbacksAfterClientClose(),
		nats.ClosedHandler(o.handleClosed),
	}, o.Extra...)
	if o.CredsFile != "" {
		credentials, err := credentials(o.CredsFile)
		if err != nil {
			return nil, fmt.Errorf("--nats-creds: %w", err)
		}
		options = append(options, credentials)
	}
	if o.CAFile != "" {
		if err := checkCA(o.CAFile); err != nil {
			return nil, fmt.Errorf("--nats-ca: %w", err)
		}
		options = append(options, nats.RootCAs(o.CAFile))
	}

	begin, announced := time.Now(), false
	for {
		nc, err := nats.Connect(o.URL, options...)
		if err == nil {
			return nc, nil
		}
		if !announced && ctx.Err() == nil && time.Since(begin) >= connectQuietPeriod {
			announced = true
			o.Log.WithError(err).Warnf("waiting for NATS at %s, for up to %s (--nats-url)",
				RedactURLs(o.URL), o.ConnectTimeout)
		}
		select {
		case <-ctx.Done():
			return nil,
				fmt.Errorf("cannot reach NATS at %s within %s (%w); is it running, and is "+
					"--nats-url right?", RedactURLs(o.URL), o.ConnectTimeout, err)
		// Do not use a ticker: a tick may be pending when ctx ends, and select might then start
		// another attempt.
		case <-time.After(connectRetryInterval):
		}
	}
}

// handleClosed is called when the connection was closed for good and the program has not called
// Close. It logs this and calls OnClosed.
func (o *Options) handleClosed(nc *nats.Conn) {
	err := ErrClosed
	if last := nc.LastError(); last != nil {
		err = fmt.Errorf("%w: %w", ErrClosed, last)
	}
	o.Log.WithError(err).Error("NATS connection closed for good")
	if o.OnClosed != nil {
		o.OnClosed(err)
	}
}

// A server whose host fails does not close its connections. The client therefore abandons a
// connection after the third ping in a row without a reply, 2 to 3 seconds after the server's last
// message. If a write blocks, it abandons the connection after writeStallTimeout. A ping costs 6
// bytes each way.
const (
	pingInterval = time.Second
	maxPings     = 2
)

// Connect waits connectRetryInterval between two attempts. It does not log failures within the
// first connectQuietPeriod, because programs that start together often wait that long for the
// server.
const (
	connectRetryInterval = 250 * time.Millisecond
	connectQuietPeriod   = time.Second
)

// credentials reads a credentials file, which holds either a user JWT with its seed or only an NKey
// seed.
func credentials(file string) (nats.Option, error) {
	content, err := os.ReadFile(file) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, err
	}
	if bytes.Contains(content, []byte("BEGIN NATS USER JWT")) {
		return nats.UserCredentials(file), nil
	}
	option, err := nats.NkeyOptionFromSeed(file)
	if err != nil {
		return nil, fmt.Errorf("%s holds no credentials: %w", file, err)
	}
	return option, nil
}

// checkCA returns an error if a file contains no usable certificates. Without the check, Connect
// would retry until its timeout.
func checkCA(file string) error {
	content, err := os.ReadFile(file) //nolint:gosec // the operator's own file
	if err != nil {
		return err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(content) {
		return fmt.Errorf("%s holds no certificate", file)
	}
	return nil
}

// checkURLs returns an error if one of the comma-separated URLs cannot be the URL of a NATS server.
// Without the check, Connect would wait until its timeout for a server that does not exist.
func checkURLs(urls string) error {
	urls = strings.Trim(urls, ", ") // nats.go also ignores a superfluous comma
	for text := range strings.SplitSeq(urls, ",") {
		text = strings.TrimSpace(text)
		whole := text
		if !strings.Contains(text, "://") {
			whole = "nats://" + text // as nats.go does
		}
		u, err := url.Parse(whole)
		if err == nil && u.Port() != "" {
			_, err = strconv.ParseUint(u.Port(), 10, 16)
		}
		if err != nil || u.Hostname() == "" {
			// Leave out err, because it may contain a password.
			return fmt.Errorf("--nats-url: %q is not the URL of a NATS server; write "+
				"nats://host:port, separated by commas", RedactURLs(text))
		}
	}
	return nil
}

// RedactURLs returns a list of NATS URLs without their user names, passwords and tokens.
func RedactURLs(urls string) string {
	list := strings.Split(urls, ",")
	for i, address := range list {
		address = strings.TrimSpace(address)
		if u, err := url.Parse(address); err == nil && u.User != nil {
			u.User = nil
			address = u.String()
		} else if at := strings.LastIndexByte(address, '@'); at >= 0 {
			address = address[at+1:]
		}
		list[i] = address
	}
	return strings.Join(list, ",")
}
