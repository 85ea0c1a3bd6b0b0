package postgres

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// errWrongURL means that Open can never succeed with this URL, so callers must not retry.
var errWrongURL = errors.New("the database URL is wrong")

// errURLFormat means that the URL is malformed. Its message contains no part of the URL, because a
// password may be anywhere in a malformed URL.
var errURLFormat = fmt.Errorf("%w: it has the form "+
	"postgres://user:password@host:port/database?sslmode=verify-full, with special characters "+
	"escaped as %%XX", errWrongURL)

// parseURL parses a database URL. Its errors contain nothing that could be part of a password.
func parseURL(text string) (*pgxpool.Config, error) {
	if text == "" { // pgx would fall back to environment variables
		return nil, errURLFormat
	}
	config, err := pgxpool.ParseConfig(text)
	if err == nil {
		return config, nil
	}
	parsed, urlErr := url.Parse(text)
	if urlErr != nil || (parsed.Scheme != "postgres" && parsed.Scheme != "postgresql") {
		return nil, errURLFormat
	}
	// pgx's error quotes the URL. The text after the quote describes the problem, such as a wrong
	// option, port or file.
	_, reason, ok := strings.Cut(oneLine(err), "`: ")
	password, _ := parsed.User.Password()
	secrets := append([]string{password}, parsed.Query()["password"]...)
	for _, secret := range secrets {
		if secret != "" &&
			(strings.Contains(reason, secret) ||
				strings.Contains(reason, url.QueryEscape(secret))) {
			return nil, errURLFormat
		}
	}
	if !ok || parsed.Query().Has("sslpassword") {
		return nil, errURLFormat
	}
	return nil, fmt.Errorf("%w: %s", errWrongURL, reason)
}

// wrapOpenError adds the names of the database, server and user to err, but not the password.
func wrapOpenError(config *pgxpool.Config, err error) error {
	c := config.ConnConfig
	return &openError{
		text: fmt.Sprintf("cannot open the database %s on %s port %d as %s: %s", c.Database, c.Host,
			c.Port, c.User, oneLine(err)),
		err: err,
	}
}

// openError is an error of pgx with its message on a single line. pgx uses one line per address.
type openError struct {
	text string
	err  error
}

func (e *openError) Error() string { return e.text }
func (e *openError) Unwrap() error { return e.err }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
