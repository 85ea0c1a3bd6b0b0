package soak

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/retry"
)

// While PostgreSQL is unavailable under load, senders notice nothing, the executors report the
// outage, and a newly started executor waits for the database. Afterwards everything is recorded.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	database := pgtest.StartServer(t)
	i := set(t, installConfig{nodes: 1, ingresses: 1, executors: 2, database: database})
	p := post(t, i, 0)
	p.awaitAccepted(t, 200)

	if err := database.Kill(); err != nil {
		t.Fatal(err)
	}
	first, second := i.executors[0], i.executors[1]
	if err := eventually(t.Context(), recoverTimeout, func(ctx context.Context) error {
		if text, ready := first.readiness(ctx); ready || !strings.Contains(text, "database: ") {
			return &notReadyError{text}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	second.kill()
	// Start the second executor just before the database is back: a starting executor waits at most
	// 30 s for the database, but the outage may be longer (see away).
	retry.Sleep(t.Context(), *away-time.Second)
	if err := second.start(); err != nil {
		t.Fatal(err)
	}
	retry.Sleep(t.Context(), time.Second)
	if text, ready := second.readiness(t.Context()); ready {
		t.Errorf("an executor without a database: %s", text)
	}
	if err := database.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	if err := i.awaitReady(t.Context(), 30*time.Second); err != nil {
		t.Error(err)
	}
	p.awaitAccepted(t, 100)
	all := p.end()

	checkStored(t, i, all, 30*time.Second-time.Since(back))
	for _, one := range all {
		if one.answer.Status != 200 {
			t.Errorf("%s", one)
		}
	}
}

// notReadyError is the error for an unexpected response from /readyz. text is the response's body.
type notReadyError struct{ text string }

func (e *notReadyError) Error() string { return "/readyz says " + e.text }
