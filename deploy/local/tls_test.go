package local_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/noredirect"
)

const hostName = "hooks.example.com"

// certificate creates a key and a self-signed certificate for hostName. The certificate expires at
// the given time. certificate returns the paths of the two files, and a client that trusts the
// certificate.
func certificate(t *testing.T, ends time.Time) (certFile, keyFile string, client *http.Client) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     ends,
		DNSNames:     []string{hostName},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certFile, keyFile = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert},
		keyFile:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return certFile, keyFile, noredirect.NewClient(&http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs:    pool,
			ServerName: hostName,
			MinVersion: tls.VersionTLS12,
		},
	}, 0)
}

// With certificates, both listeners serve HTTPS, the demo workflow is created, the console's cookie
// is Secure, and a metric reports when the certificates expire.
func TestTLSOnBothListeners(t *testing.T) {
	t.Parallel()
	ends := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	certFile, keyFile, client := certificate(t, ends)
	p := launch(t, "--data-dir", t.TempDir(), "--admin-token="+adminToken, "--tls-cert", certFile,
		"--tls-key", keyFile, "--executor-tls-cert", certFile, "--executor-tls-key", keyFile)
	ops := p.Await(`\nMetrics +(\S+)`)
	console := p.Await(`\nConsole +(https://[^/\s]+)`)
	webhook := p.Await(`\n  (https\S+/webhooks/\S+)`)

	response, err := client.Post(webhook, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the webhook: %s", response.Status)
	}
	response, err = client.PostForm(console+"/sign-in", url.Values{"token": {adminToken}})
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if cookies := response.Cookies(); len(cookies) != 1 || !cookies[0].Secure ||
		!strings.HasPrefix(cookies[0].Name, "__Host-") {
		t.Errorf("sign-in over https: %s %v", response.Status, cookies)
	}
	response, err = http.Get(ops)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range []string{"ingress", "executor"} {
		name := "\nhookstart_" + component + "_certificate_expiry_timestamp_seconds "
		_, value, _ := strings.Cut(string(metrics), name)
		value, _, _ = strings.Cut(value, "\n")
		if seconds, err := strconv.ParseFloat(value, 64); err != nil ||
			int64(seconds) != ends.Unix() {
			t.Errorf("%s%s; want %d", name, value, ends.Unix())
		}
	}
	p.Terminate()
}
