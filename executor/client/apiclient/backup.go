package apiclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// BackUpRecords calls each for every line of the content of the database. It returns an error if
// the answer is incomplete.
func (c *Client) BackUpRecords(ctx context.Context, each func(line []byte) error) error {
	return c.lines(ctx, "/backup/records", nil, each)
}

// BackUpAudit calls each for every line of the audit entries of the changes of one bucket, from one
// time to another, both included.
func (c *Client) BackUpAudit(
	ctx context.Context, bucket string, since, until time.Time, each func(line []byte) error,
) error {
	query := url.Values{
		"bucket": {bucket},
		"since":  {since.Format(time.RFC3339Nano)},
		"until":  {until.Format(time.RFC3339Nano)},
	}
	return c.lines(ctx, "/backup/audit", query, each)
}

// lines calls each for every line of an answer.
func (c *Client) lines(
	ctx context.Context, path string, query url.Values, each func(line []byte) error,
) error {
	response, err := c.send(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReaderSize(response.Body, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return noConnection("the records of %s broke off: %w", c.base,
				errors.Join(err, context.Cause(ctx)))
		}
		if bytes.Equal(line, []byte("{}\n")) {
			return nil
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

// RestoreRecords writes one line that BackUpRecords has read. With first, the database must be
// empty.
func (c *Client) RestoreRecords(ctx context.Context, line []byte, first bool) error {
	var query url.Values
	if first {
		query = url.Values{"first": {"true"}}
	}
	return c.call(ctx, http.MethodPost, "/backup/records", query, asIs(line), nil)
}
