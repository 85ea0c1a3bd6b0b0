package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/hookstart/hookstart/executor/client/api"
)

// TestAPageOfAnotherSite checks that a page from another origin can read and watch executions with
// a key that is valid for an hour, as described in deploy/docs/access.md, and that it can do so
// only if its origin is configured.
func TestAPageOfAnotherSite(t *testing.T) {
	t.Parallel()
	script := regexp.MustCompile("(?s)```js\n(.*?)```").FindStringSubmatch(string(file(t,
		repository+"/deploy/docs/access.md")))
	if script == nil {
		t.Fatal("access.md has no script")
	}
	var page string
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(w, page)
	}))
	defer site.Close()
	stranger := httptest.NewServer(site.Config.Handler)
	defer stranger.Close()

	l := launchLocal(t, t.TempDir(), "--api-origins", site.URL)
	made, err := l.client().CreateKey(t.Context(), api.PutKey{
		Name:      "a page",
		Role:      "viewer",
		AccountID: "demo",
		ExpiresAt: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	page = `<!doctype html><title>Another site</title><ul id="seen"></ul><p id="failed"></p><script type="module">
		const key = ` + quote(made.Secret) + `;
		try {
			` + strings.ReplaceAll(script[1], "https://hookstart.example.com", l.executor) + `
			document.body.dataset.listed = items.length;
			for (;;) {
				await watch((execution) => {
					const li = document.createElement("li");
					li.textContent = execution.deliveryId + " " + execution.status;
					document.querySelector("#seen").append(li);
				});
			}
		} catch (problem) {
			document.querySelector("#failed").textContent = problem;
		}
	</script>`

	b := openBrowser(t, site.URL)
	b.do(chromedp.Navigate(site.URL))
	b.wait(`"listed" in document.body.dataset`)
	deadline := time.Now().Add(time.Minute)
	for i := 0; b.evaluate(`String(document.querySelectorAll("#seen li").length)`) == "0"; i++ {
		// The page may not have opened its event stream yet, and would miss this delivery. So keep
		// sending until the page has seen an event.
		if time.Now().After(deadline) {
			t.Fatalf("no event came: %s",
				b.evaluate(`document.querySelector("#failed").textContent`))
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.webhook,
			strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Webhook-Delivery-Id", fmt.Sprintf("page-%d", i))
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	b.text("#seen", "succeeded")
	b.contented()

	other := openBrowser(t, stranger.URL)
	other.do(chromedp.Navigate(stranger.URL))
	other.text("#failed", "Failed to fetch")
}
