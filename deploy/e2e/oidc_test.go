package e2e

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

// startIdentityProvider starts a real OpenID Connect provider and returns its URL. The provider has
// a sign-in page, the users test-user@localhost and test-user2, and a userinfo endpoint that
// returns their attributes. register registers the console at the given URL as a client of the
// provider. Only one test at a time can use a provider, because the provider's package has a global
// list of clients.
func startIdentityProvider(t *testing.T) (issuer string, register func(console string)) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// As in production, the provider is not on the same site as the console, which is at 127.0.0.1.
	issuer = "http://localhost:" + port
	var provider http.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		provider.ServeHTTP(w, r)
	})
	register = func(console string) {
		storage.RegisterClients(storage.WebClient("hookstart", "the-client-secret",
			console+"/sign-in/callback"))
	}
	register("http://127.0.0.1:1")
	provider = exampleop.SetupServer(issuer, storage.NewStorage(storage.NewUserStore(issuer)),
		slog.New(slog.NewTextHandler(io.Discard, nil)), false)
	server.Start()
	t.Cleanup(server.Close)
	return issuer, register
}

// launchWithProvider starts hookstart-local with an identity provider. One user is an editor of the
// account demo, the other a viewer of all accounts.
func launchWithProvider(t *testing.T, args ...string) *localProgram {
	t.Helper()
	issuer, register := startIdentityProvider(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the-client-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := launchLocal(t, t.TempDir(), append(args,
		"--oidc-issuer", issuer, "--oidc-client-id=hookstart", "--oidc-client-secret-file", secret,
		"--oidc-role=email=test-user@zitadel.ch:editor@demo",
		"--oidc-role=preferred_username=test-user2:viewer")...)
	register(l.executor)
	return l
}

// signInAtProvider signs in through the identity provider: it follows the link on the console's
// sign-in page, and submits the provider's sign-in page.
func signInAtProvider(b *tab, user, password string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + "/sign-in?next=%2Fworkflows"))
	b.click(`a[href^="/sign-in/provider"]`)
	b.see("#username")
	submitAtProvider(b, user, password)
}

// submitAtProvider fills in the provider's sign-in page and submits it. The caller must then wait
// for the next page, because the old page may still be shown when submitAtProvider returns.
func submitAtProvider(b *tab, user, password string) {
	b.t.Helper()
	b.write("#username", user)
	b.write("#password", password)
	b.click("button[type=submit]")
}

func TestSignInThroughAProvider(t *testing.T) {
	t.Parallel()
	l := launchWithProvider(t)
	client := l.client()
	if _, err := client.PutAccount(t.Context(), "globex",
		api.PutAccount{Name: "Globex Inc."}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PutWorkflow(t.Context(), "globex-wf",
		api.PutWorkflow{
			AccountID: "globex", Name: "Globex orders",
			Triggers: []api.PutTrigger{{NodeID: "webhook"}},
		}); err != nil {
		t.Fatal(err)
	}
	traffic(t, l, "globex-wf")
	noTrace := func(b *tab) {
		t.Helper()
		for _, path := range []string{
			"/", "/workflows", "/executions", "/dead-letters", "/refusals", "/accounts",
			"/workflows/demo", "/executions?within=1h", "/executions?delivery=globex-delivery",
			"/executions?status=failed", "/workflows?q=o", "/new-workflow",
		} {
			b.visit(path)
			b.wait(fragmentsAreThere)
			text := b.evaluate(`document.documentElement.outerHTML`)
			if _, query, _ := strings.Cut(path, "?"); query == "" &&
				strings.Contains(strings.ToLower(text), "globex") {
				t.Errorf("%s shows another account", path)
			}
		}
		for path, want := range map[string]string{
			"/workflows/globex-wf":      "There is no such workflow",
			"/workflows?account=globex": "Not found", "/keys": "Forbidden",
			"/executions/" + executionOf(t, client, "globex-wf"): "There is no such execution",
		} {
			b.visit(path)
			if title := b.evaluate(`document.querySelector("h1").innerText`); title != want {
				t.Errorf("%s: %s, want %s", path, title, want)
			}
		}
	}

	t.Run("an editor of one account", func(t *testing.T) {
		b := openBrowser(t, l.executor)
		signInAtProvider(b, "test-user@localhost", "wrong")
		b.text("body", "username or password wrong")
		submitAtProvider(b, "test-user@localhost", "verysecure")
		b.page("Workflows")
		b.text(".who", "Test User · editor of demo")
		noTrace(b)
		b.visit("/workflows/demo")
		b.see("[data-switch]")
		b.click("[data-show-token]")
		b.text("#webhook-url", "hst_")
		b.click("[data-switch]")
		b.wait(`document.querySelector("[data-switch]").getAttribute("aria-checked") === "false"`)
		if keys := b.evaluate(`String(document.querySelectorAll("nav a[href='/keys']").length)`); keys != "0" {
			t.Error("an editor is shown the way to the keys")
		}
		b.contented()
		signOut(b)
	})
	t.Run("a viewer", func(t *testing.T) {
		b := openBrowser(t, l.executor)
		signInAtProvider(b, "test-user2", "verysecure")
		b.page("Workflows")
		b.text(".who", "viewer")
		b.text("main", "Globex orders")
		b.visit("/workflows/demo")
		b.text("#url", "viewers do not see")
		for _, selector := range []string{
			"[data-switch]", "[data-show-token]", "[data-rotate]", "[data-sample]",
			"[data-settings]", "[data-handling]", "[form^=again-]", "[data-delete]",
		} {
			if n := b.evaluate(`String(document.querySelectorAll(` + quote(selector) + `).length)`); n != "0" {
				t.Errorf("a viewer is offered %s", selector)
			}
		}
		if answer := b.evaluate(`fetch("/api/v1/workflows/demo/activate", { method: "POST" }).then((r) => r.text())`); !strings.Contains(answer, `"forbidden"`) {
			t.Errorf("activation: %s", answer)
		}
		if answer := b.evaluate(`fetch("/api/v1/workflows/demo/triggers/webhook").then((r) => r.text())`); strings.Contains(answer, "hst_") || !strings.Contains(answer, `"tokens"`) {
			t.Errorf("the trigger: %s", answer)
		}
		b.contented()
	})
	if log := l.Output(); strings.Contains(log, "the-client-secret") ||
		strings.Contains(log, "code=") {
		t.Error("a secret is in the log")
	}
}

// A session that was started through an identity provider expires, even while a page is idle. The
// browser is then redirected to the provider, and afterwards returns to the same page.
func TestSessionsThroughAProviderEnd(t *testing.T) {
	l := launchWithProvider(t, "--oidc-session=5s")
	b := openBrowser(t, l.executor)
	signInAtProvider(b, "test-user2", "verysecure")
	b.page("Workflows")
	b.do(chromedp.Navigate(b.base + "/workflows/demo?node=webhook"))
	// The end of the session also ends the console's event stream, and the page then redirects to
	// the provider. Wait for a field of the provider's page.
	b.see("#username")
	submitAtProvider(b, "test-user2", "verysecure")
	b.wait(`location.pathname + location.search === "/workflows/demo?node=webhook"`)
	b.text(".who", "viewer")
	b.contented()
}

// A key that is created in the console is shown only once. With this key, a user can sign in to the
// console until the key is revoked.
func TestKeysInTheConsole(t *testing.T) {
	t.Parallel()
	l := launchLocalWithLink(t)
	b := openBrowser(t, l.executor)
	b.do(chromedp.Navigate(l.executor + "/sign-in"))
	b.write("#token", adminToken)
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.page("Overview")
	b.visit("/keys")
	b.write("#name", "CI of team A")
	b.do(chromedp.SetValue(chromedp.CSS("#role"), "editor"),
		chromedp.SetValue(chromedp.CSS("#account"), "demo"))
	b.click("#new-key .primary")
	key := strings.TrimSpace(b.text("#made-key", "hsk_"))
	b.click(`[data-copy="made-key"]`)
	b.text(`[data-copy="made-key"]`, "Copied")
	if copied := b.evaluate(`navigator.clipboard.readText()`); copied != key {
		t.Errorf("copied %q, shown %q", copied, key)
	}
	b.visit("/keys")
	if html := b.evaluate(`document.documentElement.outerHTML`); strings.Contains(html, key) || !strings.Contains(html, "CI of team A") {
		t.Error("the key is shown again, or is not in the list")
	}

	other := openBrowser(t, l.executor)
	other.do(chromedp.Navigate(l.executor + "/sign-in"))
	other.write("#token", key)
	other.do(chromedp.Submit(chromedp.CSS("#token")))
	other.page("Overview")
	other.text(".who", "CI of team A · editor of demo")
	other.visit("/workflows/demo")
	other.see("[data-switch]")

	b.click(".keys .act button")
	b.text("dialog[open]", "CI of team A")
	b.click(`dialog[open] [value="yes"]`)
	b.text("[data-done]", "is revoked")
	other.page("Sign in") // the page notices that its event stream has ended; it makes no request
	b.contented()
}

// traffic creates one execution and one refused request of a workflow with the node "webhook".
func traffic(t *testing.T, l *localProgram, workflow string) {
	t.Helper()
	client := l.client()
	if _, err := client.Activate(t.Context(), workflow); err != nil {
		t.Fatal(err)
	}
	trigger, err := client.Trigger(t.Context(), workflow, "webhook")
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]int{trigger.URL: 200, trigger.URL + "x": 403} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"globex":true}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Webhook-Delivery-Id", "globex-delivery")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _ = response.Body.Close(); response.StatusCode != want {
			t.Fatalf("a webhook: %s, want %d", response.Status, want)
		}
	}
}

// executionOf waits until a workflow has an execution, and returns the newest one's ID.
func executionOf(t *testing.T, client *apiclient.Client, workflow string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		found, err := client.Executions(t.Context(),
			apiclient.ExecutionFilter{WorkflowID: workflow}, apiclient.Page{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Items) > 0 {
			return found.Items[0].ExecutionID
		}
	}
	t.Fatalf("no execution of %s is recorded", workflow)
	return ""
}

// longKey creates two keys, which have every property that the list of keys can show. The name of
// one of them is long.
func longKey(t *testing.T, l *localProgram) {
	t.Helper()
	for _, put := range []api.PutKey{
		{
			Name: strings.Repeat("Long name without a place to break ", 5) +
				strings.Repeat("W", 25),
			Role: "editor", AccountID: "demo", ExpiresAt: time.Now().Add(90 * 24 * time.Hour),
		},
		{Name: "Grafana", Role: "viewer"},
	} {
		if _, err := l.client().CreateKey(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
}
