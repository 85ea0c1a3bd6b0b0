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

// BackUpRecords requests a backup of the database and calls each(line) for every line of the
// backup. It returns an error if one of these calls returns an error, or if the response is
// incomplete.
func (c *Client) BackUpRecords(ctx context.Context, each func(line []byte) error) error {
	return c.forEachLine(ctx, "/backup/records", nil, each)
}

// BackUpAudit requests a backup of audit entries and calls each(line) for every line of the backup.
// The backup contains the entries of the changes that were made in the given bucket from since to
// until, both inclusive. bucket is "registry" or "registry_secrets". BackUpAudit returns an error
// if one of these calls returns an error, or if the response is incomplete.
func (c *Client) BackUpAudit(
	ctx context.Context, bucket string, since, until time.Time, each func(line []byte) error,
) error {
	query := url.Values{
		"bucket": {bucket},
		"since":  {since.Format(time.RFC3339Nano)},
		"until":  {until.Format(time.RFC3339Nano)},
	}
	return c.forEachLine(ctx, "/backup/audit", query, each)
}

// forEachLine sends a GET request and calls each(line) for every line of the response, except for
// the last line, which must be {}. If that last line is missing, the response is incomplete, and
// forEachLine returns an error. It also returns an error if a call of each returns one.
func (c *Client) forEachLine(
	ctx context.Context, path string, query url.Values, each func(line []byte) error,
) error {
	response, err := c.sendRequest(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReaderSize(response.Body, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return newConnectionError("the records of %s broke off: %w", c.baseURL,
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

// RestoreRecords restores one line of a backup made by BackUpRecords. Set first to true for the
// first line: the call then fails unless the database is empty.
func (c *Client) RestoreRecords(ctx context.Context, line []byte, first bool) error {
	var query url.Values
	if first {
		query = url.Values{"first": {"true"}}
	}
	return c.call(ctx, http.MethodPost, "/backup/records", query, rawJSON(line), nil)
}
