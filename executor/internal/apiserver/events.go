package apiserver

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humahttprouter"

	"github.com/hookstart/hookstart/executor/internal/signin"
	"github.com/hookstart/hookstart/executor/internal/weblog"
)

// writeTimeout is how long a client of an event stream may take nothing.
const writeTimeout = 10 * time.Second

// eventsAtOnce is how many records are looked up for one write: a client sees the first
// of many soon.
const eventsAtOnce = 100

func (s *server) routeEvents(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/executions/stream", id: "stream-executions", tag: tagExecutions,
		summary: "Watch executions",
		description: "Server-sent events: `event: execution`, and as `data` the record in one line, each time one changes. " +
			"Changes that follow each other closely may come as one. A stream ends when its client is too slow, when changes may have been missed, and when " +
			"the executor stops: connect again, and ask for the list once for what was missed.",
		responses: map[string]*huma.Response{"200": {
			Description: "Events, until one side ends the stream.",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}},
	}, s.streamExecutions)
}

func (s *server) streamExecutions(ctx context.Context, in *struct {
	OfAccount
	WorkflowID string `query:"workflowId" doc:"Only this workflow's."`
},
) (*huma.StreamResponse, error) {
	// First watch, then show that the stream is open: what changes after that is not missed.
	changed, cancel, err := s.Operate.Watch(ctx, signin.Caller(ctx))
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(of huma.Context) {
		defer cancel()
		_, w, _ := humahttprouter.Unwrap(of)
		header := w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("X-Accel-Buffering", "no") // nginx would keep events back
		err := s.sendEvents(ctx, eventWriter{w, http.NewResponseController(w)}, changed, in.AccountID, in.WorkflowID)
		if !errors.Is(err, errStreamEnded) {
			weblog.Of(ctx).Err = err
		}
	}}, nil
}

// errStreamEnded means that a stream ended as streams do: the client is gone, or is cut
// off because it is too slow, or the executor stops.
var errStreamEnded = errors.New("the event stream has ended")

func (s *server) sendEvents(ctx context.Context, to eventWriter, changed <-chan []string, accountID, workflowID string) error {
	if err := to.write("retry: 1000\n\n"); err != nil {
		return err
	}
	keepAlive := time.NewTicker(s.KeepAlive)
	defer keepAlive.Stop()
	for {
		select {
		case <-s.Done:
			return errStreamEnded
		case <-ctx.Done():
			return errStreamEnded
		case <-keepAlive.C:
			if err := to.write(": keep-alive\n\n"); err != nil {
				return err
			}
		case ids, open := <-changed:
			if !open {
				return errStreamEnded
			}
			for chunk := range slices.Chunk(ids, eventsAtOnce) {
				events, err := s.executionEvents(ctx, chunk, accountID, workflowID)
				if err == nil && events != "" {
					err = to.write(events)
				}
				if err != nil {
					return err
				}
			}
		}
	}
}

// executionEvents are the events for records, the oldest first.
func (s *server) executionEvents(ctx context.Context, ids []string, accountID, workflowID string) (string, error) {
	changed, err := s.Operate.Changed(ctx, signin.Caller(ctx), ids, accountID, workflowID)
	if err != nil {
		return "", err
	}
	var events strings.Builder
	for _, one := range changed {
		line, err := encodePlain(one.Execution)
		if err != nil {
			return "", err
		}
		events.WriteString("event: execution\ndata: ")
		events.Write(line)
		events.WriteString("\n\n")
	}
	return events.String(), nil
}

// eventWriter writes to a client that reads for ever.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// write writes at once, and within its own time: the server's limit is for answers that
// end.
func (e eventWriter) write(text string) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not supported: then there is no limit either
	_, err := e.w.Write([]byte(text))
	if err == nil {
		err = e.control.Flush()
	}
	_ = e.control.SetWriteDeadline(time.Time{})
	if err != nil {
		return errStreamEnded
	}
	return nil
}
