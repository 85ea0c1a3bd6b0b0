package ops_test

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/ops"
)

// exhausted is a listener whose first Accept fails, as if the process had no file descriptors left.
type exhausted struct {
	net.Listener
	failed bool
}

func (e *exhausted) Accept() (net.Conn, error) {
	if e.failed {
		return nil, net.ErrClosed
	}
	e.failed = true
	return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
}

func TestServerLog(t *testing.T) {
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	log.SetFormatter(&logrus.JSONFormatter{})
	server := http.Server{ErrorLog: ops.NewServerLogger(log)}
	if err := server.Serve(&exhausted{Listener: &net.TCPListener{}}); !errors.Is(err,
		net.ErrClosed) {
		t.Error(err)
	}
	if line := out.String(); !strings.Contains(line, `"level":"warning"`) ||
		!strings.Contains(line, "too many open files") {
		t.Error(line)
	}
	out.Reset()
	server.ErrorLog.Print("http: TLS handshake error from 192.0.2.1:1: EOF")
	if out.Len() > 0 {
		t.Errorf("a stranger's mistake is logged: %s", &out)
	}
}
