// Package tlsfiles gives a listener TLS from a certificate file and a key file, and follows the files when they
// are renewed: no restart, no signal.
package tlsfiles

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
)

// lookEvery is how often the files are looked at, at most.
const lookEvery = 10 * time.Second

// Flags says what is wrong with the names of the files: both or none.
func Flags(certFile, keyFile string) error {
	if (certFile == "") != (keyFile == "") {
		return errors.New("--tls-cert and --tls-key go together")
	}
	return nil
}

// Listen returns the listener with TLS, HTTP/1.1 alone, and registers when its certificate expires as
// hookstart_{component}_certificate_expiry_timestamp_seconds. Without files it returns the listener as it
// is, and the metric is 0. A renewed certificate holds for connections that begin 10 s later; one that cannot be
// read is logged, and the old one stays.
func Listen(listener net.Listener, certFile, keyFile, component string, metrics prometheus.Registerer, log logrus.FieldLogger) (net.Listener, error) {
	expiry := func() float64 { return 0 }
	if certFile != "" {
		f := &files{cert: certFile, key: keyFile, log: log, now: time.Now}
		if err := f.load(); err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		expiry = func() float64 { return float64(f.current().Leaf.NotAfter.Unix()) }
		listener = tls.NewListener(listener, &tls.Config{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current(), nil },
			MinVersion:     tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		})
	}
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hookstart_" + component + "_certificate_expiry_timestamp_seconds",
		Help: "When the certificate of the listener expires, in Unix time; 0: it has none.",
	}, expiry))
	return listener, nil
}

// files are a certificate and its key. They are safe for concurrent use.
type files struct {
	cert, key string
	log       logrus.FieldLogger
	now       func() time.Time

	mu     sync.Mutex
	loaded *tls.Certificate
	seen   [2]state // of the files, when they were read
	looked time.Time
}

// state is what changes when a file is replaced.
type state struct {
	modified time.Time
	size     int64
}

// current is the certificate of the files as they are now, or were ten seconds ago.
func (f *files) current() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); now.Sub(f.looked) >= lookEvery {
		f.looked = now
		if f.states() != f.seen {
			if err := f.loadLocked(); err != nil {
				f.log.WithError(err).Warn("the renewed TLS certificate cannot be used; the old one stays")
			}
		}
	}
	return f.loaded
}

func (f *files) load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = f.now()
	return f.loadLocked()
}

// loadLocked remembers what it has seen only if it fits together: else it looks again.
func (f *files) loadLocked() error {
	seen := f.states()
	loaded, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return err
	}
	f.loaded, f.seen = &loaded, seen
	return nil
}

func (f *files) states() (states [2]state) {
	for i, name := range []string{f.cert, f.key} {
		if info, err := os.Stat(name); err == nil {
			states[i] = state{info.ModTime(), info.Size()}
		}
	}
	return states
}
