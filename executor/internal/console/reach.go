package console

import (
	"net/http"

	"github.com/hookstart/hookstart/executor/internal/signin"
)

// reachFragment is where the public URL leads. It is a part of its own because asking may
// take a while.
func (c *Console) reachFragment(w http.ResponseWriter, r *http.Request) {
	found, err := c.Operate.CheckPublicURL(r.Context(), signin.Caller(r.Context()))
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.write(w, r, http.StatusOK, "fragment", "reach", found)
}
