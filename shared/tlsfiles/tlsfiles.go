// Package tlsfiles adds TLS to a listener, using a certificate file and a key file. When the files
// are renewed, it reloads them without a restart or a signal.
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

// fileCheckInterval is the minimum interval between two checks of the files.
const fileCheckInterval = 10 * time.Second

// CheckFlags returns an error if only one of the two file names is set.
func CheckFlags(certFile, keyFile string) error {
	if (certFile == "") != (keyFile == "") {
		return errors.New("--tls-cert and --tls-key go together")
	}
	return nil
}

// WrapListener returns listener with TLS for HTTP/1.1, and registers the metric
// hookstart_{component}_certificate_expiry_timestamp_seconds. Without files, it returns listener
// unchanged, and the metric is 0. A renewed certificate is used for new connections after at most
// 10 s. If it cannot be read, an error is logged and the old one stays in use.
func WrapListener(
	listener net.Listener, certFile, keyFile, component string, metrics prometheus.Registerer,
	log logrus.FieldLogger,
) (net.Listener, error) {
	expiry := func() float64 { return 0 }
	if certFile != "" {
		f := &certificateReloader{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
		if err := f.load(); err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		expiry = func() float64 { return float64(f.current().Leaf.NotAfter.Unix()) }
		listener = tls.NewListener(listener, &tls.Config{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return f.current(), nil
			},
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		})
	}
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hookstart_" + component + "_certificate_expiry_timestamp_seconds",
		Help: "When the certificate of the listener expires, in Unix time; 0: it has none.",
	}, expiry))
	return listener, nil
}

// certificateReloader serves a certificate and its key from two files, and reloads them when they
// change. It is safe for concurrent use.
type certificateReloader struct {
	certFile, keyFile string
	log               logrus.FieldLogger
	now               func() time.Time

	mu             sync.Mutex
	certificate    *tls.Certificate
	loadedVersions [2]fileVersion // the versions of both files that were loaded last
	lastCheck      time.Time
}

// fileVersion identifies a version of a file: replacing the file changes it.
type fileVersion struct {
	modified time.Time
	size     int64
}

// current returns the certificate. It reloads the files if they have changed, but checks them at
// most once per fileCheckInterval.
func (f *certificateReloader) current() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); now.Sub(f.lastCheck) >= fileCheckInterval {
		f.lastCheck = now
		if f.fileVersions() != f.loadedVersions {
			if err := f.reloadLocked(); err != nil {
				f.log.WithError(err).Warn("the renewed TLS certificate cannot be used; the old " +
					"one stays")
			}
		}
	}
	return f.certificate
}

func (f *certificateReloader) load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastCheck = f.now()
	return f.reloadLocked()
}

// reloadLocked loads the files. If that fails, for example because the certificate and the key do
// not match, it does not record the versions of the files, so that the next check loads them again.
// The caller must hold mu.
func (f *certificateReloader) reloadLocked() error {
	seen := f.fileVersions()
	loaded, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return err
	}
	f.certificate, f.loadedVersions = &loaded, seen
	return nil
}

// fileVersions returns the current versions of the certificate file and of the key file. The
// version of a missing file is zero.
func (f *certificateReloader) fileVersions() (versions [2]fileVersion) {
	for i, name := range []string{f.certFile, f.keyFile} {
		if info, err := os.Stat(name); err == nil {
			versions[i] = fileVersion{info.ModTime(), info.Size()}
		}
	}
	return versions
}
