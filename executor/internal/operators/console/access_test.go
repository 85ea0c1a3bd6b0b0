package console_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/operators/console"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/ops/logtest"
)

// Every page redirects visitors without a session to the sign-in page. After the sign-in, they are
// redirected back to the page.
func TestEveryPageRequiresSignIn(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, path := range []string{
		"/", "/workflows", "/workflows/any", "/new-workflow", "/executions", "/executions/any",
		"/dead-letters", "/refusals", "/queues", "/accounts", "/keys", "/audit", "/no/such/page",
		"/workflows?q=a+b&account=x", "/assets/old/console.js",
	} {
		a := r.get(path)
		want := "/sign-in?next=" + url.QueryEscape(path)
		if path == "/" {
			want = "/sign-in"
		}
		if a.status != http.StatusSeeOther || a.location != want ||
			strings.Contains(a.body, "<main") {
			t.Errorf("%s: %d to %q", path, a.status, a.location)
		}
	}
	for _, path := range []string{
		"/fragments/executions", "/fragments/refusals?workflow=any", "/fragments/numbers",
	} {
		if a := r.get(path); a.status != http.StatusUnauthorized || a.body != "" {
			t.Errorf("%s: %d %q", path, a.status, a.body)
		}
	}
	for _, cookie := range []string{"", "x", strings.Repeat("A", 75), "Bearer " + adminToken} {
		if a := r.get("/",
			with("Cookie", "hookstart_session="+cookie)); a.status != http.StatusSeeOther {
			t.Errorf("with the session %q: %d", cookie, a.status)
		}
	}
}

func TestSignInAndOut(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, token := range []string{"", "wrong", adminToken + "x", adminToken[:5]} {
		a := r.call(http.MethodPost, "/sign-in", url.Values{
			"token": {token},
			"next":  {"/accounts"},
		})
		if a.status != http.StatusForbidden || len(a.cookies) > 0 ||
			!strings.Contains(a.body, `value="/accounts"`) {
			t.Errorf("token %q: %d, %v", token, a.status, a.cookies)
		}
		if token != "" && strings.Contains(a.body, token) {
			t.Errorf("the page repeats %q", token)
		}
	}
	a := r.call(http.MethodPost, "/sign-in", url.Values{
		"token": {" " + adminToken + "\n"},
		"next":  {"/accounts"},
	})
	if a.status != http.StatusSeeOther || a.location != "/accounts" || len(a.cookies) != 1 {
		t.Fatalf("sign in: %d to %q, %v", a.status, a.location, a.cookies)
	}
	c := a.cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" ||
		c.MaxAge != 12*60*60 || c.Domain != "" || c.Secure {
		t.Errorf("the cookie: %+v", c)
	}
	if strings.Contains(c.Value, adminToken) {
		t.Error("the token is in the cookie")
	}
	session := with("Cookie", c.Name+"="+c.Value)
	if a := r.get("/accounts", session); a.status != http.StatusOK {
		t.Errorf("signed in: %d", a.status)
	}
	if a := r.get("/sign-in?next=/workflows", session); a.location != "/workflows" {
		t.Errorf("signed in already: %d to %q", a.status, a.location)
	}
	a = r.call(http.MethodPost, "/sign-out", url.Values{}, session)
	if a.status != http.StatusSeeOther || a.location != "/sign-in" || len(a.cookies) != 1 ||
		a.cookies[0].MaxAge >= 0 || a.cookies[0].Value != "" {
		t.Errorf("sign out: %d to %q, %v", a.status, a.location, a.cookies)
	}
	// Signing out invalidates every copy of the session cookie: at this executor, at another
	// executor, and for the API.
	another := httptest.NewServer(console.New(console.Config{
		Log: logtest.Discard(),
		SignIn: signin.New(signin.Config{
			AdminToken:      adminToken,
			RevokedSessions: operate.NewRevokedSessions(r.store),
		}),
	}))
	defer another.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, another.URL+"/accounts",
		nil)
	r.check(err)
	session(request)
	response, err := http.DefaultTransport.RoundTrip(request)
	r.check(err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusSeeOther {
		t.Errorf("a copy at another executor: %d", response.StatusCode)
	}
	if a := r.get("/accounts", session); a.status != http.StatusSeeOther ||
		!strings.HasPrefix(a.location, "/sign-in") {
		t.Errorf("a copy of the cookie: %d to %q", a.status, a.location)
	}
	if a := r.get("/api/v1/accounts", session); a.status != http.StatusUnauthorized {
		t.Errorf("a copy at the API: %d", a.status)
	}
	if a := r.get("/accounts", r.signIn()); a.status != http.StatusOK {
		t.Errorf("another session: %d", a.status)
	}
	if a := r.call(http.MethodPost, "/sign-in",
		url.Values{"token": {strings.Repeat("x", 1<<20)}}); a.status != http.StatusForbidden {
		t.Errorf("a token of 1 MB: %d", a.status)
	}
}

func TestSignInOnce(t *testing.T) {
	t.Parallel()
	r := start(t)
	if a := r.get("/sign-in?once=wrong"); a.status != http.StatusForbidden || len(a.cookies) > 0 {
		t.Errorf("a wrong nonce: %d, %v", a.status, a.cookies)
	}
	// A program, such as a link preview, may send a HEAD request to the one-time link before a
	// person follows it. This request does not use up the link.
	if a := r.call(http.MethodHead, "/sign-in?once="+nonce, nil); len(a.cookies) > 0 {
		t.Errorf("HEAD: %v", a.cookies)
	}
	var (
		wg        sync.WaitGroup
		signedIn  atomic.Int32
		following answer
	)
	for range 20 {
		wg.Go(func() {
			a := r.get("/sign-in?once=" + nonce + "&next=/accounts")
			if len(a.cookies) == 1 && signedIn.Add(1) == 1 {
				following = a
			}
		})
	}
	wg.Wait()
	if signedIn.Load() != 1 {
		t.Fatalf("the link signed in %d times", signedIn.Load())
	}
	// The response is a page that loads the next URL, not an HTTP redirect: after a redirect from a
	// link on another site, the browser would not send the new cookie.
	if following.status != http.StatusOK ||
		!strings.Contains(following.body, `content="0; url=/accounts"`) {
		t.Errorf("%d %s", following.status, following.body)
	}
	if a := r.get("/",
		with("Cookie",
			following.cookies[0].Name+"="+following.cookies[0].Value)); a.status != http.StatusOK {
		t.Errorf("with its session: %d", a.status)
	}
	if a := r.get("/sign-in?once="); a.status != http.StatusOK || len(a.cookies) > 0 {
		t.Errorf("no nonce: %d, %v", a.status, a.cookies)
	}
}

// Another site can make a signed-in user's browser send requests to the console and the API, but
// these requests change nothing.
func TestOtherSitesChangeNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	session := r.signIn()
	account := func(change ...func(*http.Request)) int {
		t.Helper()
		change = append(change, func(request *http.Request) {
			request.Header.Set("Content-Type", "application/json")
		})
		request := append([]func(*http.Request){session}, change...)
		return r.putAccount(request...)
	}
	for _, c := range []struct {
		what   string
		change []func(*http.Request)
		status int
	}{
		{
			"another site",
			[]func(*http.Request){with("Sec-Fetch-Site", "cross-site")},
			http.StatusUnauthorized,
		},
		{
			"another host of this site",
			[]func(*http.Request){with("Sec-Fetch-Site", "same-site")},
			http.StatusUnauthorized,
		},
		{
			"an old browser, another site", []func(*http.Request){
				with("Origin", "https://evil.example"),
			}, http.StatusUnauthorized,
		},
		{
			"an old browser, a sandbox",
			[]func(*http.Request){with("Origin", "null")},
			http.StatusUnauthorized,
		},
		{
			"the console",
			[]func(*http.Request){with("Sec-Fetch-Site", "same-origin")},
			http.StatusCreated,
		},
		{
			"the console in an old browser",
			[]func(*http.Request){with("Origin", r.server.URL)},
			http.StatusOK,
		},
		{"no browser", nil, http.StatusOK},
		{
			"another site with the token itself", []func(*http.Request){
				with("Sec-Fetch-Site", "cross-site"), with("Authorization", "Bearer "+adminToken),
			}, http.StatusOK,
		},
	} {
		if got := account(c.change...); got != c.status {
			t.Errorf("%s: %d, want %d", c.what, got, c.status)
		}
	}
	for _, path := range []string{"/sign-in", "/sign-out"} {
		a := r.call(http.MethodPost, path, url.Values{"token": {adminToken}}, session,
			with("Sec-Fetch-Site", "cross-site"))
		if a.status != http.StatusForbidden || len(a.cookies) > 0 {
			t.Errorf("POST %s from another site: %d, %v", path, a.status, a.cookies)
		}
		wantSecured(t, path, a)
	}
	// If the user follows a link on another site, the browser does not send the session cookie. The
	// response is therefore a page of this site that loads the same URL again, now with the cookie.
	a := r.get("/workflows?q=x", with("Sec-Fetch-Site", "cross-site"),
		with("Sec-Fetch-Mode", "navigate"))
	if a.status != http.StatusOK || !strings.Contains(a.body, `content="0; url=/workflows?q=x"`) {
		t.Errorf("a link on another site: %d %s", a.status, a.body)
	}
}

// putAccount sends a PUT for the account "acme" to the API, as a script on a page of the console
// does. It returns the status of the response. The functions in change can modify the request
// before it is sent.
func (r *rig) putAccount(change ...func(*http.Request)) int {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPut,
		r.server.URL+"/api/v1/accounts/acme", strings.NewReader(`{"name":"Acme","plan":"free"}`))
	r.check(err)
	for _, c := range change {
		c(request)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	r.check(err)
	_ = response.Body.Close()
	return response.StatusCode
}
