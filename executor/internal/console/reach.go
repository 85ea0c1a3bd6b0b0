package console

import (
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/internal/reach"
)

// reachFragment is where the public URL leads. It is a part of its own because asking may
// take a while.
func (c *Console) reachFragment(w http.ResponseWriter, r *http.Request) {
	c.write(w, r, http.StatusOK, "fragment", "reach", c.Reach.Check(r.Context()))
}

// loopback is the base of a URL that only its own machine can reach, else "".
func loopback(base string) string {
	u, err := url.Parse(base)
	if err != nil || !reach.Loopback(base) {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
