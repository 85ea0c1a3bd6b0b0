package ops

import (
	stdlog "log"
	"strings"

	"github.com/sirupsen/logrus"
)

// NewServerLogger returns a logger for an http.Server's messages about connections. Failures to
// accept connections are logged as warnings. All other messages are about clients' mistakes and are
// logged at level debug.
func NewServerLogger(
	log logrus.FieldLogger,
) *stdlog.Logger {
	return stdlog.New(serverLogWriter{log}, "", 0)
}

type serverLogWriter struct{ log logrus.FieldLogger }

func (s serverLogWriter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	entry := s.log.WithField("detail", text)
	if strings.HasPrefix(text, "http: Accept error") {
		entry.Warn("HTTP server")
	} else {
		entry.Debug("HTTP server")
	}
	return len(line), nil
}
