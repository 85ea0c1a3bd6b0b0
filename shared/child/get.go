package child

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// getTimeout is how long a process may take to answer HTTPGet.
const getTimeout = 10 * time.Second

// getClient uses a new connection for each request. An idle connection might lead to an earlier
// process that served the same address.
var getClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// HTTPGet requests a URL that a process serves, such as its /readyz. It returns the status code of
// the response, and the body without leading and trailing white space.
func HTTPGet(ctx context.Context, url string) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := getClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(body)), err
}
