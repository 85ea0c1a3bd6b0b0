package apiclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
)

// BackUpRecords calls each for every line of what the database keeps. It fails if the answer breaks off.
func (c *Client) BackUpRecords(ctx context.Context, each func(line []byte) error) error {
	response, err := c.send(ctx, http.MethodGet, "/backup/records", nil, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReaderSize(response.Body, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return noConnection("the records of %s broke off: %w", c.base, errors.Join(err, context.Cause(ctx)))
		}
		if bytes.Equal(line, []byte("{}\n")) {
			return nil
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

// RestoreRecords writes one line of what BackUpRecords has read. With first, the database must be empty.
func (c *Client) RestoreRecords(ctx context.Context, line []byte, first bool) error {
	var query url.Values
	if first {
		query = url.Values{"first": {"true"}}
	}
	return c.call(ctx, http.MethodPost, "/backup/records", query, asIs(line), nil)
}
