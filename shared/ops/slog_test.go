package ops_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/ops"
)

func TestSlogWritesToTheProgramsLog(t *testing.T) {
	t.Parallel()
	var written bytes.Buffer
	log := logrus.New()
	log.SetOutput(&written)
	log.SetFormatter(&logrus.JSONFormatter{})
	to := ops.NewSlogLogger(log).With("queue", "orders")
	to.Debug("not at this level")
	to.Warn("run", "attempt", 2, "error", errors.New("no"))
	got := written.String()
	for _, want := range []string{
		`"attempt":2`, `"error":"no"`, `"level":"warning"`, `"msg":"run"`, `"queue":"orders"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s has no %s", got, want)
		}
	}
	if strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}
