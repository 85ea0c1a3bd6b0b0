package apiserver_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// The get-size call returns hourly counts of the requests of the last week, and no older counts.
func TestSize(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) { c.Retention = 30 * 24 * time.Hour })
	size := func() (size api.Size) {
		t.Helper()
		r.check(json.Unmarshal(r.get("/size").is(200).body, &size))
		return size
	}
	empty := size()
	if len(empty.Hours) != 0 || empty.Database.Records != 0 ||
		!empty.Database.OldestAcceptedAt.IsZero() || empty.Workflows != 0 {
		t.Errorf("empty: %+v", empty)
	}
	if past := time.Since(empty.At); past < 0 || past > time.Minute {
		t.Errorf("at %s", empty.At)
	}

	r.put("/accounts/acme", `{"name":"Acme","plan":"pro"}`).is(201)
	r.put("/workflows/wf", `{"accountId":"acme","name":"wf","triggers":[{"nodeId":"node"}]}`).
		is(201)
	hour := time.Now().UTC().Truncate(time.Hour)
	yesterday, old := hour.Add(-24*time.Hour), hour.Add(-8*24*time.Hour)
	var batch store.Batch
	for _, at := range []time.Time{
		old, yesterday, yesterday.Add(59 * time.Minute), yesterday.Add(time.Hour),
	} {
		batch.NewRecords = append(batch.NewRecords, store.Record{
			ID: uuid.NewString(), AccountID: "acme", WorkflowID: "wf", NodeID: "node",
			Queue: "default", Source: execution.SourceWebhook, Status: execution.Queued,
			AcceptedAt: at, RecordedAt: at,
		})
	}
	_, err := r.store.Apply(t.Context(), batch)
	r.check(err)
	r.check(r.store.AddDuplicates(t.Context(), "repeats", yesterday,
		map[string]int64{batch.NewRecords[1].ID: 5}))
	r.check(r.store.AddRefusals(t.Context(), "refusals", yesterday, []store.RefusalCount{
		{WorkflowID: "wf", Code: "rate_limited", Minute: yesterday, Count: 7},
		{WorkflowID: "wf", Code: "json_invalid", Minute: yesterday, Count: 2},
	}))

	got := size()
	want := []api.SizeHour{
		{At: yesterday, Accepted: 2, Deduplicated: 5, Refused: 9},
		{At: yesterday.Add(time.Hour), Accepted: 1},
	}
	if !slices.Equal(got.Hours, want) {
		t.Errorf("%+v, want %+v", got.Hours, want)
	}
	if got.Workflows != 1 || got.WorkflowsLastWeek != 1 {
		t.Errorf("workflows: %+v", got)
	}
	d := got.Database
	if d.Kind != "sqlite" || d.Records != 4 || !d.OldestAcceptedAt.Equal(old) ||
		d.RetentionSeconds != 30*24*3600 || d.Bytes <= 0 || d.FreeBytes == nil ||
		*d.FreeBytes <= 0 {
		t.Errorf("database: %+v", d)
	}
}
