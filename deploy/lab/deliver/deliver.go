// Package deliver sends deliveries to webhooks, as senders do.
package deliver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// Answer is the ingress's response to a delivery. Fields that the response lacks are zero.
type Answer struct {
	Status       int    `json:"-"`
	ExecutionID  string `json:"executionId"`
	Deduplicated bool   `json:"deduplicated"`
	Code         string `json:"code"`
}

// Post sends a delivery once. A response with an error status, such as 503, is returned without an
// error. It is an error if the connection fails, or if the response cannot be read or is not JSON.
func Post(
	ctx context.Context, client *http.Client, url string, header map[string]string, body io.Reader,
) (a Answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return a, err
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	a.Status = response.StatusCode
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}
