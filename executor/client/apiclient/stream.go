package apiclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
)

const (
	// maxEventLineBytes is the maximum length of a line of the event stream, in bytes.
	maxEventLineBytes = 1 << 20
	// streamIdleTimeout is how long Watch waits for data before it gives up the connection. The
	// executor sends several keep-alives in this time.
	streamIdleTimeout = time.Minute
)

var errStreamIdle = errors.New("the stream of events is silent for too long")

// ExecutionWatch configures Watch, and holds the position from which the next call to Watch
// resumes.
type ExecutionWatch struct {
	// WorkflowID selects the executions of this workflow. "" means all executions.
	WorkflowID string
	// LastEventID is the ID of the last event that was handled. Watch updates it. If it is set,
	// Watch first reports the changes since that event, and possibly some earlier ones again. If it
	// is "", Watch reports only the changes from now on.
	LastEventID string
	// Opened is called when the event stream is open. Watch misses no change after that. Opened may
	// be nil.
	Opened func() error
	// Gap is called if the executor no longer knows every change since LastEventID. Gap should look
	// up the current state of the executions. If it returns an error, the next call to Watch calls
	// Gap again. Gap may be nil.
	Gap func() error
	// Changed is called for every execution that changes.
	Changed func(api.Execution) error
}

// Watch calls w.Changed for each execution that changes. If a callback in w returns an error, Watch
// returns that error. If the executor ended the stream, Watch returns nil, and the caller should
// call Watch again with the same w. Otherwise, Watch returns the error that ended the stream.
func (c *Client) Watch(ctx context.Context, w *ExecutionWatch) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamIdleTimeout, func() { cancel(errStreamIdle) })
	defer silence.Stop()
	from := *c
	from.lastEventID = w.LastEventID
	response, err := from.sendRequest(ctx, http.MethodGet, "/executions/stream", queryParameters{
		"workflowId": w.WorkflowID,
	}.query(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); mediaType !=
		"text/event-stream" {
		return newConnectionError("the answer of %s is not an event stream; is it the executor's "+
			"address?", c.baseURL)
	}
	if w.Opened != nil {
		if err := w.Opened(); err != nil {
			return err
		}
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEventLineBytes)
	var event streamEvent
	for lines.Scan() {
		silence.Reset(streamIdleTimeout)
		if line := lines.Text(); line != "" {
			event.addLine(line)
			continue
		}
		if err := c.handleEvent(w, event); err != nil {
			return err
		}
		event = streamEvent{id: event.id}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return lines.Err()
}

// streamEvent is one server-sent event.
type streamEvent struct {
	id   string // ID of the event, or of the last earlier event that had one
	name string
	data string
}

func (e *streamEvent) addLine(line string) {
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "id":
		e.id = value
	case "event":
		e.name = value
	case "data":
		e.data = value
	}
}

// handleEvent calls w.Gap or w.Changed, depending on the event. If the call succeeds, handleEvent
// sets w.LastEventID to the event's ID.
func (c *Client) handleEvent(w *ExecutionWatch, event streamEvent) error {
	switch {
	case event.name == "gap":
		if w.Gap != nil {
			if err := w.Gap(); err != nil {
				return err
			}
		}
	case event.data != "":
		var e api.Execution
		if err := json.Unmarshal([]byte(event.data), &e); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		if c.bodyTap != nil {
			c.bodyTap([]byte(event.data))
		}
		if err := w.Changed(e); err != nil {
			return err
		}
	case w.LastEventID != "":
		// The event has no data. It is either a keep-alive, which is a comment in the stream, or
		// the ID with which the stream begins after a gap. Do not store the ID yet: if w.Gap fails,
		// the next Watch must begin at the earlier position.
		return nil
	}
	w.LastEventID = event.id
	return nil
}
