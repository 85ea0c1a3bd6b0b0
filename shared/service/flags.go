package service

import (
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/ops"
)

// The types of this file are the flags that several programs have. A program's Config embeds each
// where its --help shows it, and completes the texts with the variables named here, by the tag set.
// The name, the help and the default of a flag are written here only.

// OpsFlags is the address of metrics and health checks. The variable ops_addr is its default, and
// ops_note a note at the end of its help.
type OpsFlags struct {
	OpsAddr string `help:"Address of metrics, /healthz, /readyz, /log-level and /debug/pprof.${ops_note= Not for the public.}" default:"${ops_addr=127.0.0.1:9090}"`
}

// TLSFlags are the files of a certificate. Without them the service speaks plain HTTP. The variable
// speaks is the name of the second flag, and what speaks HTTPS with both.
type TLSFlags struct {
	TLSCert string `name:"tls-cert" help:"Certificate chain file; with ${speaks} HTTPS." type:"path"`
	TLSKey  string `name:"tls-key" help:"Private key file." type:"path"`
}

// NATSFlags are the NATS servers that a service connects to. An empty NATSCreds means no
// credentials, and an empty NATSCA the system's certificate authorities.
type NATSFlags struct {
	NATSURL   string `name:"nats-url" help:"NATS servers, comma-separated." default:"nats://127.0.0.1:4222"`
	NATSCreds string `name:"nats-creds" help:"Credentials file for NATS." type:"path"`
	NATSCA    string `name:"nats-ca" help:"File with the certificate authority of the NATS servers." type:"path"`
}

// ConnectFlags limits how long a service waits at its start. The variable what is what it waits
// for beside NATS.
type ConnectFlags struct {
	ConnectTimeout time.Duration `help:"How long to wait at start for NATS${what}." default:"30s"`
}

// ShutdownFlags limits how long requests in flight may continue after the context has ended. The
// variable grace is the default.
type ShutdownFlags struct {
	ShutdownTimeout time.Duration `help:"How long requests in flight may take to finish after SIGTERM." default:"${grace}"`
}

// LogFlags is the level of the log. The variable line is what one line of the log describes.
type LogFlags struct {
	LogLevel string `help:"error, warn, info or debug. At info, every ${line} is one line." default:"info"`
}

// InProcess is what a Go program that runs a service beside others gives it. It has no flags. The
// zero value means that the service is alone in its process.
type InProcess struct {
	// NATSOptions holds additional options for the NATS connection. hookstart-local uses them to
	// connect in process.
	NATSOptions []nats.Option
	// Listener accepts the connections. If it is nil, the service listens on its --addr.
	Listener net.Listener
	// Log replaces the service's logger; its level overrides LogLevel. nil means that the service
	// creates one.
	Log *logrus.Logger
	// Ops is an ops endpoint that this process shares with other services and serves itself; the
	// service then opens no ops listener. nil means that the service serves one on OpsAddr.
	Ops *ops.Ops
}
