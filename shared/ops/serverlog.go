package ops

import (
	stdlog "log"
	"strings"

	"github.com/sirupsen/logrus"
)

// ServerLog takes an http.Server's lines about connections. Those about clients' mistakes are for debugging; that no more can be
// accepted is a warning.
func ServerLog(log logrus.FieldLogger) *stdlog.Logger { return stdlog.New(serverLog{log}, "", 0) }

type serverLog struct{ log logrus.FieldLogger }

func (s serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	entry := s.log.WithField("detail", text)
	if strings.HasPrefix(text, "http: Accept error") {
		entry.Warn("HTTP server")
	} else {
		entry.Debug("HTTP server")
	}
	return len(line), nil
}
