package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humahttprouter"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/requestlog"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// writeTimeout is the maximum duration of one write to an event stream. A write blocks while the
// client does not read.
const writeTimeout = 10 * time.Second

// maxEventsPerWrite is the maximum number of records that are looked up for one write. It is small,
// so that a client with many events to receive gets the first ones soon.
const maxEventsPerWrite = 100

func (s *server) routeEvents(to huma.API) {
	registerOperation(to, operationSpec{
		method:  http.MethodGet,
		path:    "/executions/stream",
		id:      "stream-executions",
		tag:     tagExecutions,
		summary: "Watch executions",
		description: "Server-sent events: `event: execution`, with an `id`, and as `data` the " +
			"record in one line, each time one changes. A stream begins with an `id` of its own, " +
			"before any event. Changes that follow each other closely may come as one. A stream " +
			"ends when its client is too slow, when changes may have been missed, when the key " +
			"is revoked or expires, when the console's session ends or is signed out, and when " +
			"the executor stops. Connect again with the last `id` as `Last-Event-ID`: what " +
			"changed since then comes first, some of it again. After too many changes, or " +
			"another executor's start, it begins with `event: gap`: ask for the list once for " +
			"what was missed.",
		problemCodes: []string{api.CodeTooManyStreams},
		responses: map[string]*huma.Response{"200": {
			Description: "Events, until one side ends the stream. The schema is that of an " +
				"event's data, from which generators make its type.",
			Content: map[string]*huma.MediaType{
				"text/event-stream": {Schema: schemaOf[api.Execution](to)},
			},
		}},
	}, s.streamExecutions)
}

// watchInput selects the executions to watch, and the event after which the stream resumes.
type watchInput struct {
	AccountFilter
	WorkflowID  string `query:"workflowId" doc:"Selects the executions of this workflow."`
	LastEventID string `header:"Last-Event-ID" doc:"The id of the last event that the client received. Absent: the changes from now on are sent."`
}

// resumeTime returns the time of the last event that the client received, from Last-Event-ID. It
// returns the zero time if the header is absent.
func (in *watchInput) resumeTime() (time.Time, error) {
	if in.LastEventID == "" {
		return time.Time{}, nil
	}
	micros, err := strconv.ParseInt(in.LastEventID, 10, 64)
	if err != nil || micros <= 0 {
		return time.Time{}, invalidFieldsProblem(api.FieldError{
			Field:   "Last-Event-ID",
			Problem: "must be an id of this stream",
		})
	}
	return time.UnixMicro(micros), nil
}

func (s *server) streamExecutions(
	ctx context.Context, caller operate.Caller, in *watchInput,
) (*huma.StreamResponse, error) {
	after, err := in.resumeTime()
	if err != nil {
		return nil, err
	}
	// Start watching before the client is told that the stream is open. The stream then contains
	// every change from that moment on.
	watching, err := s.Operate.Watch(ctx, caller, after)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer watching.Cancel()
		_, w, _ := humahttprouter.Unwrap(c)
		header := w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer events
		err := s.sendEvents(ctx, streamWriter{w, http.NewResponseController(w)}, watching, in)
		if !errors.Is(err, errStreamEnded) {
			requestlog.FromContext(ctx).Err = err
		}
	}}, nil
}

// errStreamEnded means that a stream has ended normally: for example, the client has disconnected
// or is too slow, or the executor is shutting down.
var errStreamEnded = errors.New("the event stream has ended")

func (s *server) sendEvents(
	ctx context.Context, to streamWriter, watching operate.Subscription, in *watchInput,
) error {
	begin := "retry: 1000\n"
	if in.LastEventID == "" || !watching.CatchUpComplete {
		// This ID lets a client resume even if it has not received any event.
		begin += fmt.Sprintf("id: %d\n", watching.Since.UnixMicro())
	}
	begin += "\n"
	if !watching.CatchUpComplete {
		begin += "event: gap\ndata: {}\n\n"
	}
	if err := to.write(begin); err != nil {
		return err
	}
	for _, batch := range watching.CatchUpBatches {
		if err := s.sendBatch(ctx, to, batch, in); err != nil {
			return err
		}
	}
	keepAlive := time.NewTicker(s.KeepAliveInterval)
	defer keepAlive.Stop()
	var over <-chan time.Time
	if end := signin.SessionExpiry(ctx); !end.IsZero() {
		timer := time.NewTimer(time.Until(end))
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case <-s.ShutdownStarted:
			return errStreamEnded
		case <-ctx.Done():
			return errStreamEnded
		case <-watching.Ended:
			return errStreamEnded
		case <-over:
			return errStreamEnded
		case <-keepAlive.C:
			if signin.SessionRevoked(ctx) {
				return errStreamEnded
			}
			if err := to.write(": keep-alive\n\n"); err != nil {
				return err
			}
		case batch, open := <-watching.Batches:
			if !open {
				return errStreamEnded
			}
			if err := s.sendBatch(ctx, to, batch, in); err != nil {
				return err
			}
		}
	}
}

func (s *server) sendBatch(
	ctx context.Context, to streamWriter, batch operate.ChangeBatch, in *watchInput,
) error {
	for chunk := range slices.Chunk(batch.IDs, maxEventsPerWrite) {
		events, err := s.executionEvents(ctx, batch.At, chunk, in)
		if err == nil && events != "" {
			err = to.write(events)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// executionEvents returns the server-sent events for those of the given executions that match the
// request's filters and that the caller may see, oldest first. The ID of each event is the time at,
// in Unix microseconds. If the caller's session or key was revoked, executionEvents returns
// errStreamEnded.
func (s *server) executionEvents(
	ctx context.Context, at time.Time, ids []string, in *watchInput,
) (string, error) {
	if signin.SessionRevoked(ctx) {
		return "", errStreamEnded
	}
	changed, err := s.Operate.ChangedExecutions(ctx, signin.Caller(ctx), ids, in.AccountID,
		in.WorkflowID)
	if refused, ok := errors.AsType[*operate.Error](err); ok &&
		refused.Code == api.CodeUnauthorized {
		return "", errStreamEnded // the key was revoked after the stream had begun
	}
	if err != nil {
		return "", err
	}
	var events strings.Builder
	for _, batch := range changed {
		line, err := encodeUnescapedJSON(batch.Execution)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(&events, "id: %d\nevent: execution\ndata: ", at.UnixMicro())
		events.Write(line)
		events.WriteString("\n\n")
	}
	return events.String(), nil
}

// streamWriter writes a response of unlimited length, such as an event stream or a backup.
type streamWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// write writes text and flushes it. Each write gets a new deadline, because the server's own write
// deadline would apply to the response as a whole. write returns errStreamEnded if the client has
// disconnected or does not read.
func (e streamWriter) write(text string) error {
	// This fails only if deadlines are not supported, and then there is no deadline to extend.
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTimeout))
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
