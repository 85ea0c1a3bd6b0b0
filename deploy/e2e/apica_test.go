package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority is a certificate authority that signs the certificates of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	a.cert, a.key, a.file, _ = a.make(template)
	return a
}

// make creates a certificate and its key. If the authority has no certificate yet, the new
// certificate is self-signed; otherwise the authority signs it.
func (a *authority) make(
	template *x509.Certificate,
) (cert *x509.Certificate, key *ecdsa.PrivateKey, certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(signed); err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	folder := a.t.TempDir()
	certFile, keyFile = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: signed},
		keyFile:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key, certFile, keyFile
}

// forLoopback creates a certificate for 127.0.0.1 and returns the paths of its files.
func (a *authority) forLoopback() (certFile, keyFile string) {
	a.t.Helper()
	_, _, certFile, keyFile = a.make(&x509.Certificate{
		SerialNumber: big.NewInt(2),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	return certFile, keyFile
}

// The command line trusts only the authority given with --api-ca. Without the flag, the error
// message names the flag to set.
func TestTheCommandLineTrustsAnAuthority(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(buildCommandLine(t), "hookstart")
	ours, other := newAuthority(t, "ours"), newAuthority(t, "other")
	certFile, keyFile := ours.forLoopback()
	l := launchLocal(t, t.TempDir(), "--executor-tls-cert="+certFile, "--executor-tls-key="+keyFile)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(env string, args ...string) (stdout, stderr string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin, append([]string{"workflow", "list"}, args...)...)
		cmd.Env = append(os.Environ(), "HOOKSTART_ADMIN_TOKEN="+adminToken,
			"HOOKSTART_API_URL="+l.executor, env)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); (err == nil) != (errs.Len() == 0) {
			t.Errorf("%q: %v, %s", args, err, errs.String())
		}
		return out.String(), errs.String()
	}
	for name, c := range map[string]struct {
		env    string
		args   []string
		stdout string
		stderr string
	}{
		"none":               {stderr: "hint: --api-ca or HOOKSTART_API_CA names the file"},
		"ours":               {args: []string{"--api-ca", ours.file}, stdout: "demo"},
		"in the environment": {env: "HOOKSTART_API_CA=" + ours.file, stdout: "demo"},
		"another":            {args: []string{"--api-ca", other.file}, stderr: "x509: "},
		"missing": {
			args:   []string{"--api-ca", text + "-missing"},
			stderr: "--api-ca: open ",
		},
		"no certificate": {
			args:   []string{"--api-ca", text},
			stderr: "--api-ca: " + text + " holds no certificate",
		},
	} {
		stdout, stderr := run(c.env, c.args...)
		if c.stderr == "" && stderr != "" || !strings.Contains(stderr, c.stderr) ||
			!strings.Contains(stdout, c.stdout) {
			t.Errorf("%s: %q, %q", name, stdout, stderr)
		}
	}
}
