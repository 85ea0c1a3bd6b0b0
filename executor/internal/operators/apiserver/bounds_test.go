package apiserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/store"
)

// The number of event streams per caller is limited. Otherwise, a caller with read access could
// exhaust the executor's resources.
func TestEventStreamsAreBounded(t *testing.T) {
	t.Parallel()
	var c *config
	r := start(t, func(set *config, _ *http.Server) { c = set })
	key, other := r.key("viewer", ""), r.key("viewer", "")
	caller := operate.Caller{
		Kind: operate.CallerKindKey,
		ID:   key.ID,
		Name: key.Name,
		Role: operate.RoleViewer,
	}
	var open []operate.Subscription
	for range operate.MaxEventStreamsPerCaller {
		watching, err := c.Operate.Watch(t.Context(), caller, time.Time{})
		r.check(err)
		open = append(open, watching)
	}
	if watching, err := c.Operate.Watch(t.Context(), caller, time.Time{}); err == nil {
		watching.Cancel()
		t.Fatal("there is no bound")
	}
	r.call("GET", "/executions/stream", "", with(key.Secret)).refused(429, api.CodeTooManyStreams)
	mayWatch := func(caller operate.Caller) {
		t.Helper()
		watching, err := c.Operate.Watch(t.Context(), caller, time.Time{})
		r.check(err)
		watching.Cancel()
	}
	mayWatch(operate.Caller{
		Kind: operate.CallerKindKey,
		ID:   other.ID,
		Name: other.Name,
		Role: operate.RoleViewer,
	})
	mayWatch(operate.AdminCaller())
	open[0].Cancel()
	mayWatch(caller)
	for _, one := range open[1:] {
		one.Cancel()
	}
}

// If a caller's key is revoked during a backup, the backup stops with an error.
func TestRevocationEndsABackup(t *testing.T) {
	t.Parallel()
	var c *config
	r := start(t, func(set *config, _ *http.Server) { c = set })
	key := r.key("admin", "")
	caller := operate.Caller{
		Kind: operate.CallerKindKey,
		ID:   key.ID,
		Name: key.Name,
		Role: operate.RoleAdmin,
	}
	parts := func(each func()) (n int, err error) {
		err = c.Operate.BackUpRecords(t.Context(), caller, func(part []byte) error {
			if n++; !json.Valid(part) {
				t.Errorf("part %d is no JSON", n)
			}
			each()
			return nil
		})
		return n, err
	}
	var entries []store.AuditEntry // more than fit in one part
	for n := range 600 {
		entries = append(entries, store.AuditEntry{ID: fmt.Sprint(n), At: time.Now(), Action: "a"})
	}
	r.check(r.store.AddAudit(t.Context(), entries))
	all, err := parts(func() {})
	if err != nil || all < 2 {
		t.Fatalf("%d parts, %v", all, err)
	}
	n, err := parts(func() { r.delete("/keys/" + key.ID).is(204) })
	if refused, ok := errors.AsType[*operate.Error](err); n != 1 || !ok ||
		refused.Code != api.CodeUnauthorized {
		t.Errorf("after the revocation: %d of %d parts, %v", n, all, err)
	}
}
