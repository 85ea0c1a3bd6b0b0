package service

import "time"

// The types in this file define flags that several programs have. The Config of a program embeds
// them, in the order in which its --help lists them. A help text or default that differs between
// programs contains a kong variable, such as ${grace}, which the embedding field sets with the
// struct tag "set".

// OpsFlags sets the address of metrics and health checks. The kong variable ops_addr is the
// default, and ops_note is a note at the end of the help.
type OpsFlags struct {
	OpsAddr string `help:"Address of metrics, /healthz, /readyz, /log-level and /debug/pprof.${ops_note= Not for the public.}" default:"${ops_addr=127.0.0.1:9090}"`
}

// TLSFlags sets the files of a certificate and its key. Without them, the service uses plain HTTP.
// The kong variable "speaks" completes the help of TLSCert, "with ${speaks} HTTPS": with the value
// "--tls-key the endpoint speaks", for example, the help says "with --tls-key the endpoint speaks
// HTTPS".
type TLSFlags struct {
	TLSCert string `name:"tls-cert" help:"Certificate chain file; with ${speaks} HTTPS." type:"path"`
	TLSKey  string `name:"tls-key" help:"Private key file." type:"path"`
}

// NATSFlags sets the NATS servers that a service connects to. An empty NATSCreds means no
// credentials. An empty NATSCA means the system's CAs.
type NATSFlags struct {
	NATSURL   string `name:"nats-url" help:"NATS servers, comma-separated." default:"nats://127.0.0.1:4222"`
	NATSCreds string `name:"nats-creds" help:"Credentials file for NATS." type:"path"`
	NATSCA    string `name:"nats-ca" help:"File with the certificate authority of the NATS servers." type:"path"`
}

// ConnectFlags limits how long a service waits when it starts. The kong variable "what" is the end
// of the help text: it lists what the service waits for in addition to NATS.
type ConnectFlags struct {
	ConnectTimeout time.Duration `help:"How long to wait at start for NATS${what}." default:"30s"`
}

// ShutdownFlags limits how long requests in flight may continue after the context has ended. The
// kong variable "grace" is the default.
type ShutdownFlags struct {
	ShutdownTimeout time.Duration `help:"How long requests in flight may take to finish after SIGTERM." default:"${grace}"`
}

// LogFlags sets the level of the log. At level info, the program logs one line for each event of a
// certain kind, such as a request. The kong variable "line" names that kind in the help.
type LogFlags struct {
	LogLevel string `help:"error, warn, info or debug. At info, every ${line} is one line." default:"info"`
}
