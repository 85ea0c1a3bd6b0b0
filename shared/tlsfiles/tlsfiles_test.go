package tlsfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

// write writes a new certificate and its key to the files.
func write(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		NotAfter:     time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert},
		keyFile:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		// Two writes may result in the same modification time, so set different ones.
		changed := time.Now().Add(time.Duration(serial) * time.Minute)
		if err := os.Chtimes(path, changed, changed); err != nil {
			t.Fatal(err)
		}
	}
}

// A renewed certificate is used without a restart. As long as only one of the two files is new, the
// old pair stays in use.
func TestARenewedCertificateIsUsed(t *testing.T) {
	t.Parallel()
	certFile, keyFile := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	write(t, certFile, keyFile, 1)
	log := logrus.New()
	log.SetOutput(io.Discard)
	now := time.Now()
	f := &certificateReloader{
		certFile: certFile, keyFile: keyFile, log: log, now: func() time.Time { return now },
	}
	if err := f.load(); err != nil {
		t.Fatal(err)
	}
	want := func(when string, serial int64) {
		t.Helper()
		if got := f.current().Leaf.SerialNumber.Int64(); got != serial {
			t.Errorf("%s: certificate %d, want %d", when, got, serial)
		}
	}
	write(t, certFile, keyFile, 2)
	want("at once", 1)
	now = now.Add(fileCheckInterval)
	want("ten seconds later", 2)

	write(t, certFile, filepath.Join(t.TempDir(), "other"), 3)
	now = now.Add(fileCheckInterval)
	want("with the old key", 2)
	write(t, certFile, keyFile, 4)
	now = now.Add(fileCheckInterval)
	want("with its key", 4)
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	now = now.Add(fileCheckInterval)
	want("without a file", 4)
}
