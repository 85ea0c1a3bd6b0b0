package apiclient

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/hookstart/hookstart/executor/api"
)

// maxEvent bounds one line of the stream of events.
const maxEvent = 1 << 20

// Watch calls each for every execution that changes, of one workflow or of all when
// workflowID is empty. It returns each's error, or why the stream ended; nil when the
// executor ended it: then call it again.
func (c *Client) Watch(ctx context.Context, workflowID string, each func(api.Execution) error) error {
	q := url.Values{}
	if workflowID != "" {
		q.Set("workflowId", workflowID)
	}
	response, err := c.send(ctx, http.MethodGet, "/executions/stream", q, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data:")
		if !isData {
			continue // a name, a comment, or the end of an event: there is one kind of event only
		}
		var e api.Execution
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return lines.Err()
}
