package soak

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/hookstart/hookstart/deploy/lab/network"
	"github.com/hookstart/hookstart/executor/pgtest"
)

// programHost is a host with a folder of links to this binary, one for each role. To start the
// binary in a role, the host runs the link that has the name of the role.
type programHost struct {
	*network.Host
	programFolder string // the folder with a link to the binary for each role
}

// The ports that the programs use on every host.
const (
	portClients     = "4222"
	portRoutes      = "6222"
	portMonitor     = "8222"
	portIngress     = "8080"
	portExecutor    = "8081"
	portIngressOps  = "9090" // the ingress's ops listener
	portExecutorOps = "9091" // the executor's ops listener
	portLeaf        = "7422" // leaf node connections from the servers of a second site
)

// secrets is a folder with keys and certificates like those that deploy/nats/make-secrets.sh
// generates.
type secrets struct {
	folder       string
	publicKeyEnv []string // environment variables with the public keys, for the NATS servers
}

func (s *secrets) path(name string) string { return filepath.Join(s.folder, name) }

// newSecrets generates the keys and certificates in the folder secrets within the given folder. The
// certificates are valid for the names and addresses of the hosts.
func newSecrets(folder string, hosts []*network.Host) (*secrets, error) {
	s := &secrets{folder: filepath.Join(folder, "secrets")}
	if err := os.Mkdir(s.folder, 0o700); err != nil {
		return nil, err
	}
	for _, role := range []string{"ingress", "executor", "runner", "admin", "sys", "copy"} {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return nil, err
		}
		seed, seedErr := pair.Seed()
		public, publicErr := pair.PublicKey()
		if err := errors.Join(seedErr, publicErr,
			os.WriteFile(s.path(role+".nk"), seed, 0o600)); err != nil {
			return nil, err
		}
		s.publicKeyEnv = append(s.publicKeyEnv, "NATSD_"+strings.ToUpper(role)+"_NKEY="+public)
	}
	sealing := make([]byte, 32)
	_, _ = rand.Read(sealing) // never fails
	if err := os.WriteFile(s.path("secrets.key"),
		[]byte("k1:"+base64.StdEncoding.EncodeToString(sealing)+"\n"), 0o600); err != nil {
		return nil, err
	}
	return s, s.makeCertificates(hosts)
}

func (s *secrets) makeCertificates(hosts []*network.Host) error {
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
		Subject:               pkix.Name{CommonName: "partitions"},
		NotAfter:              time.Now().AddDate(0, 0, 2),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	ca, err := x509.CreateCertificate(rand.Reader, template, template, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "server"},
		NotAfter:     template.NotAfter,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		server.DNSNames = append(server.DNSNames, h.Name)
		server.IPAddresses = append(server.IPAddresses, h.Addr.AsSlice())
	}
	cert, err := x509.CreateCertificate(rand.Reader, server, template, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"ca.crt":  {Type: "CERTIFICATE", Bytes: ca},
		"tls.crt": {Type: "CERTIFICATE", Bytes: cert},
		"tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(s.path(name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// installOnHosts starts a NATS server with the shipped configuration, an ingress, an executor and a
// runner on each host, and creates the workflows. All executors connect to one PostgreSQL through a
// Unix socket, so no partition separates them from the database. If nearest is true, each ingress
// connects only to the NATS server on its own host; otherwise, it may connect to the server on any
// host. If installOnHosts returns an error, nothing is left running. Otherwise the caller must call
// close.
func installOnHosts(
	ctx context.Context, folder, natsConfig string, hosts []*network.Host, database *pgtest.Server,
	nearest bool,
) (*installation, error) {
	i := &installation{folder: folder}
	err := i.prepareHosts(natsConfig, hosts, database, nearest)
	if err == nil {
		err = i.startAll(ctx)
	}
	if err == nil {
		return i, nil
	}
	for _, complaint := range i.problems() {
		err = errors.Join(err, errors.New(complaint))
	}
	i.close()
	return nil, err
}

func (i *installation) prepareHosts(
	natsConfig string, hosts []*network.Host, database *pgtest.Server, nearest bool,
) error {
	config, err := filepath.Abs(natsConfig)
	if err != nil {
		return err
	}
	secrets, err := newSecrets(i.folder, hosts)
	if err != nil {
		return err
	}
	return i.prepareSite(hosts, siteConfig{
		secrets:              secrets,
		natsConfigPath:       config,
		databaseURL:          database.URL(),
		replicas:             len(hosts),
		ingressUsesLocalNATS: nearest,
	})
}

// prepareSite adds the processes on the hosts of a site without starting them. It sets natsURL and
// routes in s, so the caller can leave these empty.
func (i *installation) prepareSite(hosts []*network.Host, s siteConfig) error {
	programs, err := linkPrograms(i.folder)
	if err != nil {
		return err
	}
	admin, err := nats.NkeyOptionFromSeed(s.secrets.path("admin.nk"))
	if err != nil {
		return err
	}
	i.natsOptions = []nats.Option{admin, nats.RootCAs(s.secrets.path("ca.crt"))}
	var clients, routes []string
	for _, h := range hosts {
		clients = append(clients, natsServerURL(h))
		routes = append(routes, "nats://"+net.JoinHostPort(h.Name, portRoutes))
	}
	s.natsURL, s.routes = strings.Join(clients, ","), "["+strings.Join(routes, ", ")+"]"
	for _, h := range hosts {
		i.addHostProcesses(&programHost{Host: h, programFolder: programs}, s)
	}
	return nil
}

// natsServerURL returns the URL at which programs on any host reach the NATS server of the host h.
func natsServerURL(h *network.Host) string {
	return "tls://" + net.JoinHostPort(h.Name, portClients)
}

// siteConfig holds the settings that all hosts of a site share.
type siteConfig struct {
	secrets                         *secrets
	natsURL, routes, natsConfigPath string
	databaseURL                     string
	replicas                        int
	natsEnv                         []string // for the NATS servers: NAME=value
	executorFlags                   []string // additional flags of the executors
	ingressUsesLocalNATS            bool     // whether an ingress uses only its host's NATS server
}

func (i *installation) addHostProcesses(h *programHost, s siteConfig) {
	reach := func(port string) string { return net.JoinHostPort(h.Addr.String(), port) }
	everywhere := func(port string) string { return net.JoinHostPort("0.0.0.0", port) }
	add := func(role, name string, args ...string) *process {
		p := newProcess(i.folder, name+"-"+h.Name, append([]string{role}, args...)...)
		p.host = h
		return p
	}
	n := &node{
		addr:     reach(portClients),
		url:      "tls://" + reach(portClients),
		storeDir: filepath.Join(i.folder, "store-"+h.Name),
	}
	n.process = add(roleNATSServer, "nats", "-c", s.natsConfigPath)
	n.env = append([]string{
		"NATSD_NAME=" + h.Name, "NATSD_LISTEN=" + everywhere(portClients),
		"NATSD_MONITOR=" + net.JoinHostPort("127.0.0.1", portMonitor),
		"NATSD_CERT=" + s.secrets.path("tls.crt"), "NATSD_KEY=" + s.secrets.path("tls.key"),
		"NATSD_CA=" + s.secrets.path("ca.crt"),
		"NATSD_STORE=" + n.storeDir, "NATSD_SYNC=120s",
		"NATSD_CLUSTER_LISTEN=" + everywhere(portRoutes), "NATSD_ROUTES=" + s.routes,
	}, append(s.natsEnv, s.secrets.publicKeyEnv...)...)
	i.nodes = append(i.nodes, n)

	ingressNATS := s.natsURL
	if s.ingressUsesLocalNATS {
		ingressNATS = natsServerURL(h.Host)
	}
	common := func(role, natsURL, port, opsPort string) []string {
		return []string{
			"--addr=" + everywhere(port), "--ops-addr=" + everywhere(opsPort), "--log-level=warn",
			"--nats-url=" + natsURL,
			"--nats-creds=" + s.secrets.path(role+".nk"), "--nats-ca=" + s.secrets.path("ca.crt"),
			"--secrets-key-file=" + s.secrets.path("secrets.key"),
		}
	}
	i.ingresses = append(i.ingresses, &service{
		process: add(roleIngress, "ingress",
			common("ingress", ingressNATS, portIngress, portIngressOps)...),
		url: "http://" + reach(portIngress), opsURL: "http://" + reach(portIngressOps),
	})
	executor := append(common("executor", s.natsURL, portExecutor, portExecutorOps),
		"--database-url="+s.databaseURL,
		"--admin-token="+adminToken,
		"--replicas="+strconv.Itoa(s.replicas), "--registry-copy=FEED.API",
		"--runner-groups=default/"+hostRunnerGroup,
		"--public-url=https://hooks.example.com")
	executor = append(executor, s.executorFlags...)
	i.executors = append(i.executors, &service{
		process: add(roleExecutor, "executor", executor...),
		url:     "http://" + reach(portExecutor),
		opsURL:  "http://" + reach(portExecutorOps),
	})
	runs := filepath.Join(i.folder, "runner-"+h.Name+".runs")
	i.runners = append(i.runners, &service{
		process: add(roleHostRunner, "runner", s.natsURL, s.secrets.path("runner.nk"),
			s.secrets.path("ca.crt"), runs),
		runsFile: runs,
	})
}

// linkPrograms creates a folder with a link to this binary for each role, and returns the folder's
// path. A program that is started on a host learns its role from os.Args[0], which is always the
// path of the link, so each link is named after its role.
func linkPrograms(folder string) (programs string, err error) {
	binary, err := os.Executable()
	if err != nil {
		return "", err
	}
	programs = filepath.Join(folder, "programs")
	if err := os.Mkdir(programs, 0o700); err != nil {
		return "", err
	}
	for _, role := range []string{roleNATSServer, roleIngress, roleExecutor, roleHostRunner} {
		if err := os.Symlink(binary, filepath.Join(programs, role)); err != nil {
			return "", fmt.Errorf("name a program: %w", err)
		}
	}
	return programs, nil
}
