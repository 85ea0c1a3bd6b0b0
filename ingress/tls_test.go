package ingress_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/ingress"
)

func TestHTTPS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, pool := selfSigned(t)
	s := startSituations(t)
	addr := s.startIngress(func(c *ingress.Config) { c.TLSCert, c.TLSKey = certFile, keyFile })
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true,
		},
	}
	for range 2 {
		response, err := client.Post("https://"+addr+"/webhooks/active?token="+s.token["active"],
			"application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if a := s.read(response); a.status != 200 {
			t.Errorf("%+v", a)
		}
	}
	if response, err := http.Post("http://"+addr+"/webhooks/active", "", nil); err == nil {
		_ = response.Body.Close()
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: %s", response.Status)
		}
	}
	if strings.Contains(s.log.String(), s.token["active"]) {
		t.Error("the token is in the log")
	}
}

func selfSigned(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}),
			0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", private), pool
}
