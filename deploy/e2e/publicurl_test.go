package e2e

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/freeport"
)

// The API reports whether the public URL leads to this installation, to another one, or to none at
// all.
func TestPublicURL(t *testing.T) {
	t.Parallel()
	closed, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Release()
	own := launchLocal(t, t.TempDir())
	for _, c := range []struct {
		what  string
		local *localProgram
		state string
	}{
		{"its own", own, "reached"},
		{"another's", launchLocal(t, t.TempDir(), "--public-url="+own.ingress), "another"},
		{
			"nobody's", launchLocal(t, t.TempDir(), "--public-url=http://"+closed.Addr()),
			"unreachable",
		},
	} {
		found, err := c.local.client().PublicURL(t.Context())
		if err != nil || found.State != c.state || !found.OnlyThisMachine ||
			!strings.HasPrefix(c.local.webhook, found.URL+"/webhooks/") {
			t.Errorf("%s: %+v, %v", c.what, found, err)
		}
	}
}
