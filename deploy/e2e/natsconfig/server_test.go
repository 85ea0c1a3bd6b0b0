// Package natsconfig tests the NATS configuration in deploy/nats on real servers that run with
// exactly those files.
package natsconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/embednats/freeport"
	"github.com/hookstart/hookstart/shared/ops/logtest"
)

// files is the path of the folder with the tested configuration.
const files = "../../nats"

// roles lists the roles that have credentials. sys is the system account.
var roles = []string{"ingress", "executor", "runner", "admin", "sys"}

// secrets is a folder with files like those that make-secrets.sh generates, shared by all tests.
var secrets string

// TestMain generates temporary keys and certificates, and sets the environment variables that the
// configuration reads. When the test binary is started as nk, it acts as a stand-in for that
// program.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "nk" {
		os.Exit(run(m))
	}
	if err := nk(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(m *testing.M) int {
	var err error
	if secrets, err = os.MkdirTemp("", "hookstart-natsconfig-"); err == nil {
		defer func() { _ = os.RemoveAll(secrets) }()
		err = makeSecrets()
	}
	if err != nil {
		log.Print(err)
		return 1
	}
	return m.Run()
}

// secret returns the path of a file in the secrets folder.
func secret(name string) string { return filepath.Join(secrets, name) }

func makeSecrets() error {
	for _, role := range roles {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return err
		}
		seed, seedErr := pair.Seed()
		public, publicErr := pair.PublicKey()
		if err := errors.Join(seedErr, publicErr,
			os.WriteFile(secret(role+".nk"), seed, 0o600)); err != nil {
			return err
		}
		setenv(strings.ToUpper(role)+"_NKEY", public)
	}
	if err := makeCertificates(); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"NAME":    "nats-0",
		"LISTEN":  "127.0.0.1:-1",
		"MONITOR": "127.0.0.1:-1",
		"STORE":   "/nowhere",
		"SYNC":    "always",
		"CERT":    secret("tls.crt"),
		"KEY":     secret("tls.key"),
		"CA":      secret("ca.crt"),
	} {
		setenv(name, value)
	}
	return nil
}

// setenv sets the environment variable NATSD_name for all tests.
func setenv(name, value string) {
	if err := os.Setenv("NATSD_"+name, value); err != nil {
		log.Fatal(err)
	}
}

func makeCertificates() error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	ca, err := x509.CreateCertificate(rand.Reader, template, template, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	cert, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "server"},
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:     []string{"localhost"},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, template, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	return errors.Join(err,
		writePEM("ca.crt", "CERTIFICATE", ca), writePEM("tls.crt", "CERTIFICATE", cert),
		writePEM("tls.key", "PRIVATE KEY", private))
}

func writePEM(name, kind string, der []byte) error {
	return os.WriteFile(secret(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// site is a single server, or a cluster of three, that runs with the configuration.
type site struct {
	servers []*server.Server
	url     string
}

// startSite starts the given number of servers with a configuration file. Before it reads the file
// for a server, it calls the function each, unless each is nil, for example to set environment
// variables. After that, it calls the functions in change, which may modify the options from the
// file. i is the number of the server, counted from 0.
func startSite(
	tb testing.TB, file string, servers int, each func(i int), change ...func(
		i int, o *server.Options,
	),
) *site {
	tb.Helper()
	s := &site{}
	var urls []string
	for i := range servers {
		if each != nil {
			each(i)
		}
		options, err := server.ProcessConfigFile(filepath.Join(files, file))
		if err != nil {
			tb.Fatal(err)
		}
		for _, f := range change {
			f(i, options)
		}
		options.StoreDir = tb.TempDir()
		options.NoSigs, options.NoLog = true, true
		// Do not sync every message: these tests are not about the disk.
		options.SyncAlways, options.SyncInterval = false, time.Minute
		one, err := server.NewServer(options)
		if err != nil {
			tb.Fatal(err)
		}
		one.Start()
		tb.Cleanup(func() {
			one.Shutdown()
			one.WaitForShutdown()
		})
		s.servers = append(s.servers, one)
		if !one.ReadyForConnections(10 * time.Second) {
			tb.Fatal("the server does not become ready")
		}
		_, port, err := net.SplitHostPort(one.Addr().String())
		if err != nil {
			tb.Fatal(err)
		}
		urls = append(urls, "tls://127.0.0.1:"+port)
	}
	s.url = strings.Join(urls, ",")
	return s
}

// startOne starts a single server with server.conf.
func startOne(tb testing.TB) *site {
	tb.Helper()
	return startSite(tb, "server.conf", 1, nil)
}

// startThree starts a cluster, and waits until it has a leader that knows all members.
func startThree(t *testing.T) *site {
	t.Helper()
	var routes, listen []string
	for range 3 {
		port, err := freeport.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(port.Release)
		listen = append(listen, port.Addr())
		// The route uses a host name, because NATS ignores IP addresses in the certificates of
		// routes.
		routes = append(routes, "nats://localhost:"+strconv.Itoa(port.Number))
	}
	t.Setenv("NATSD_ROUTES", "["+strings.Join(routes, ", ")+"]")
	s := startSite(t, "cluster.conf", 3, func(i int) {
		t.Setenv("NATSD_NAME", "nats-"+strconv.Itoa(i))
		t.Setenv("NATSD_CLUSTER_LISTEN", listen[i])
	})
	eventually(t, "a cluster of three", func() bool {
		for _, one := range s.servers {
			if one.JetStreamIsLeader() {
				return len(one.JetStreamClusterPeers()) == 3
			}
		}
		return false
	})
	return s
}

// connect returns a connection to the servers with the credentials of a role. It connects as the
// programs do. The connection is closed when the test ends.
func (s *site) connect(tb testing.TB, role string) *nats.Conn {
	tb.Helper()
	nc, err := bus.Connect(tb.Context(), bus.Options{
		URL:            s.url,
		Name:           role,
		ConnectTimeout: 10 * time.Second,
		CredsFile:      secret(role + ".nk"),
		CAFile:         secret("ca.crt"),
		Log:            logtest.Discard(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// eventually waits until a condition holds, and fails the test if it does not hold within 20 s.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	if !within(20*time.Second, holds) {
		tb.Fatalf("not in time: %s", what)
	}
}

// within reports whether a condition holds before the duration d has passed.
func within(d time.Duration, holds func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(d)
	for {
		if holds() {
			return true
		}
		select {
		case <-tick.C:
		case <-timeout:
			return holds()
		}
	}
}
