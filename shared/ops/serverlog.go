package ops

import (
	stdlog "log"
	"strings"

	"github.com/sirupsen/logrus"
)

// ServerLog takes the lines of an http.Server: of connections, not of requests. What others
// do wrong with theirs is for debugging; that no more can be accepted is a warning.
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
