package console

import (
	"net/http"

	"github.com/hookstart/hookstart/executor/internal/signin"
)

// reachFragment renders the result of the check of the public URL. It is a fragment because the check may take seconds.
func (c *Console) reachFragment(w http.ResponseWriter, r *http.Request) {
	found, err := c.Operate.CheckPublicURL(r.Context(), signin.Caller(r.Context()))
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.write(w, r, http.StatusOK, "fragment", "reach", found)
}
