package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/embednats/freeport"
)

// A page that stays open while the executor is killed and restarted shows every missed change
// exactly once. It redirects to the sign-in page when its session is no longer valid.
func TestConsoleComesBack(t *testing.T) {
	t.Parallel()
	findChromium(t)
	port, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Release()
	dir, fixed := t.TempDir(), "--executor-addr="+port.Addr()
	l := launchLocal(t, dir, fixed)
	b := openBrowser(t, l.executor)
	signIn := func(token string) {
		t.Helper()
		b.write("#token", token)
		b.do(chromedp.Submit(chromedp.CSS("#token")))
		b.page("Demo")
	}
	var want []string
	send := func() {
		t.Helper()
		a, err := post(t.Context(), l.webhook, nil, strings.NewReader("x"))
		if err != nil || a.Status != 200 {
			t.Fatalf("POST: %+v, %v", a, err)
		}
		recorded(t, l.client(), a.ExecutionID, func(e api.ExecutionDetail) bool {
			return e.Status == "succeeded"
		})
		want = append(want, a.ExecutionID)
	}
	rows := func() {
		t.Helper()
		newestFirst := slices.Clone(want)
		slices.Reverse(newestFirst)
		b.wait(`document.querySelector("[data-live-state].on") && [...document.querySelectorAll("[data-id]")].map((row) => row.dataset.id).join() === ` + quote(strings.Join(newestFirst, ",")))
	}

	b.do(chromedp.Navigate(b.base + "/workflows/demo"))
	signIn(adminToken)
	b.see("[data-live-state].on")
	b.do(chromedp.MouseEvent("mouseMoved", 1, 1))
	send()
	rows()

	l.Kill()
	b.wait(`!document.querySelector("[data-live-state].on")`)
	l = launchLocal(t, dir, fixed)
	send()
	rows()
	send()
	rows()

	// A different admin token ends all sessions. The page then gets no more events and redirects to
	// the sign-in page.
	l.Kill()
	l = launchLocal(t, dir, fixed, "--admin-token=another")
	b.see("#token")
	signIn("another")
	rows()
	b.contented()
}
