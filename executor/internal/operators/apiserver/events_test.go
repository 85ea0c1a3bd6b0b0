package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// eventStream is an open event stream.
type eventStream struct {
	t     *testing.T
	lines *bufio.Scanner
	close context.CancelFunc
	last  string // last event ID
}

// open opens an event stream, and returns when the API has confirmed the stream.
func (r *rig) open(query string, change ...func(*http.Request)) *eventStream {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		r.server.URL+"/api/v1/executions/stream"+query, nil)
	r.check(err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	for _, c := range change {
		c(request)
	}
	response, err := r.server.Client().Do(request)
	r.check(err)
	r.t.Cleanup(func() { _ = response.Body.Close() })
	if got := response.Header.Get("Content-Type"); response.StatusCode != 200 ||
		got != "text/event-stream" {
		r.t.Fatalf("%d, %s", response.StatusCode, got)
	}
	s := &eventStream{t: r.t, lines: bufio.NewScanner(response.Body), close: cancel}
	s.lines.Buffer(nil, 1<<20)
	first := regexp.MustCompile(`^retry: 1000(?:\nid: (\d+))?$`).FindStringSubmatch(s.block())
	if first == nil {
		r.t.Fatal("it does not begin with the time after which to connect again")
	}
	s.last = first[1]
	return s
}

// block reads the event stream up to the next empty line and returns the text before that line. It
// returns "" at the end of the stream.
func (s *eventStream) block() string {
	s.t.Helper()
	var lines []string
	for s.lines.Scan() {
		if s.lines.Text() == "" {
			return strings.Join(lines, "\n")
		}
		lines = append(lines, s.lines.Text())
	}
	return ""
}

// next returns the record in the next event.
func (s *eventStream) next() api.Execution {
	s.t.Helper()
	block := s.block()
	for block == ": keep-alive" {
		block = s.block()
	}
	id, block, _ := strings.Cut(block, "\n")
	s.last, _ = strings.CutPrefix(id, "id: ")
	data, ok := strings.CutPrefix(block, "event: execution\ndata: ")
	if !ok || strings.Contains(data, "\n") {
		s.t.Fatalf("no event: %q", block)
	}
	var e api.Execution
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		s.t.Fatal(err)
	}
	return e
}

func TestEvents(t *testing.T) {
	t.Parallel()
	r := start(t)
	all, ofWF := r.open(""), r.open("?workflowId=wf")
	r.records(store.Batch{NewRecords: []store.Record{
		record(id(2), func(rec *store.Record) { rec.WorkflowID = "other" }),
		record(id(1), func(rec *store.Record) {
			rec.AcceptedAt = epoch.Add(time.Hour)
			rec.DeliveryID = "a\n\nevent: b"
		}),
	}})
	for _, want := range []string{id(2), id(1)} { // oldest first
		if got := all.next(); got.ExecutionID != want || got.Status != "queued" {
			t.Errorf("event %+v, want %s", got, want)
		}
	}
	got := ofWF.next()
	if got.ExecutionID != id(1) || got.DeliveryID != "a\n\nevent: b" {
		t.Errorf("event %+v", got)
	}
	if listed := decode[api.List[api.Execution]](r.get("/executions?workflowId=wf").
		is(200)); listed.Items[0] != got {
		t.Errorf("the event is %+v, the record %+v", got, listed.Items[0])
	}
	r.records(store.Batch{
		Progress: []execution.Progress{
			{ID: id(1), Queue: "default", WorkflowID: "wf", Status: execution.Running, At: epoch},
		},
	})
	for _, s := range []*eventStream{all, ofWF} {
		if got := s.next(); got.ExecutionID != id(1) || got.Status != "running" {
			t.Errorf("event %+v", got)
		}
	}
}

// An event stream sends an event for every changed record, even if more than maxEventsPerWrite
// records change at once.
func TestManyEvents(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := r.open("")
	const n = 250
	records := make([]store.Record, n)
	for i := range records {
		records[i] = record(id(i))
	}
	r.records(store.Batch{NewRecords: records})
	var got []string
	for range n {
		got = append(got, s.next().ExecutionID)
	}
	if slices.Sort(got); len(slices.Compact(got)) != n {
		t.Errorf("%d of %d", len(slices.Compact(got)), n)
	}
}

// An event stream stays open for longer than the server's write timeout, and also while there are
// no events.
func TestEventStreamOutlivesTheServersLimit(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, server *http.Server) {
		c.KeepAliveInterval = 500 * time.Millisecond
		server.WriteTimeout = 2 * time.Second
	})
	s := r.open("")
	for i := range 6 {
		if got := s.block(); got != ": keep-alive" {
			t.Fatalf("%d: %q", i, got)
		}
	}
	r.records(store.Batch{NewRecords: []store.Record{record(id(1))}})
	for {
		block := s.block()
		if strings.Contains(block, "event: execution") {
			break
		}
		if block == "" {
			t.Fatal("it ended")
		}
	}
}

func TestEventStreamEnds(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	r := start(t, func(c *config, _ *http.Server) { c.ShutdownStarted = done })
	t.Run("when the watcher is cut off", func(t *testing.T) {
		s := r.in(t).open("")
		r.changes.Stop()
		if got := s.block(); got != "" {
			t.Errorf("it goes on: %q", got)
		}
	})
	t.Run("when the executor stops", func(t *testing.T) {
		s := r.in(t).open("")
		close(done)
		if got := s.block(); got != "" {
			t.Errorf("it goes on: %q", got)
		}
		r.check(r.server.Config.Shutdown(t.Context())) // nothing delays the shutdown
	})
	eventually(t, func() bool { return strings.Count(r.log.String(), `stream-executions`) == 2 })
	if strings.Contains(r.log.String(), "error=") {
		t.Errorf("an end is no error: %s", r.log)
	}
}

func TestEventStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := r.open("")
	s.close()
	eventually(t, func() bool { return strings.Contains(r.log.String(), "stream-executions") })
}

func TestEventStreamPath(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		a := r.call(method, "/executions/stream", "")
		a.refused(405, api.CodeMethodNotAllowed)
		if a.header.Get("Allow") != "GET" {
			t.Errorf("%s: Allow %q", a.call, a.header.Get("Allow"))
		}
	}
	r.post("/executions/stream/rerun", "").refused(404, api.CodeNotFound)
	for i := range 2 {
		r.get(fmt.Sprintf("/executions/stream%d", i)).refused(404, api.CodeNotFound)
	}
}
