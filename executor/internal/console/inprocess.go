package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
)

// ask asks the API, without a connection, with the session of the operator whose request
// this is. Refusals are *api.Problem.
func (c *Console) ask(r *http.Request, path string, into any) error {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "/api/v1"+path, http.NoBody) //nolint:gosec // it goes nowhere but to the handler below
	if err != nil {
		return err
	}
	for _, cookie := range r.CookiesNamed(cookieName(r)) {
		request.AddCookie(&http.Cookie{Name: sessionCookie, Value: cookie.Value}) //nolint:gosec // it does not leave the process
	}
	got := &reply{header: http.Header{}, status: http.StatusOK}
	c.API.ServeHTTP(got, request)
	if got.status >= http.StatusBadRequest {
		refused := &api.Problem{Status: got.status}
		if err := json.Unmarshal(got.body.Bytes(), refused); err != nil {
			return fmt.Errorf("the API answered %d: %w", got.status, err)
		}
		return refused
	}
	if err := apiclient.Decode(got.body.Bytes(), into); err != nil {
		return fmt.Errorf("the API's answer: %w", err)
	}
	return nil
}

// reply is an answer that is kept.
type reply struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *reply) Header() http.Header                { return r.header }
func (r *reply) WriteHeader(status int)             { r.status = status }
func (r *reply) Write(data []byte) (n int, e error) { return r.body.Write(data) }
