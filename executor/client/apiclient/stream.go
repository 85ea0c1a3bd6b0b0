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
	// streamIdleTimeout is how long the connection may deliver no data before it counts as dead. It
	// is several times the interval of the executor's keep-alive.
	streamIdleTimeout = time.Minute
)

var errStreamIdle = errors.New("the stream of events is silent for too long")

// Watch calls each for every execution that changes. If workflowID is not empty, it reports only
// that workflow's executions. When the event stream is open, it calls opened, which may be nil;
// Watch misses no change after that. If opened or each returns an error, Watch returns it;
// otherwise, it returns the error that ended the stream. If the executor ended the stream, it
// returns nil, and the caller should call Watch again.
func (c *Client) Watch(
	ctx context.Context, workflowID string, opened func() error, each func(api.Execution) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamIdleTimeout, func() { cancel(errStreamIdle) })
	defer silence.Stop()
	response, err := c.send(ctx, http.MethodGet, "/executions/stream", parameters{
		"workflowId": workflowID,
	}.query(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); mediaType !=
		"text/event-stream" {
		return newConnectionError("the answer of %s is not an event stream; is it the executor's "+
			"address?", c.base)
	}
	if opened != nil {
		if err := opened(); err != nil {
			return err
		}
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEventLineBytes)
	for lines.Scan() {
		silence.Reset(streamIdleTimeout)
		data, isData := strings.CutPrefix(lines.Text(), "data:")
		if !isData {
			// A name, an ID, a comment, or the end of an event. Without a Last-Event-ID there is
			// only one kind of event.
			continue
		}
		var e api.Execution
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		if c.tap != nil {
			c.tap([]byte(strings.TrimSpace(data)))
		}
		if err := each(e); err != nil {
			return err
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return lines.Err()
}
