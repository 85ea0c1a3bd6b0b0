package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

const defaultMaxFormBytes = 16 << 10

// signInPage is the template data of the sign-in page.
type signInPage struct {
	Next     string
	Problem  string
	Provider string // URL of the sign-in at the identity provider; "" means none
}

// askToSignIn responds with the sign-in page. next is the path of the page to show after the
// sign-in. problem says why a sign-in has failed; it is "" if none was attempted.
func (c *Console) askToSignIn(
	w http.ResponseWriter, r *http.Request, status int, next, problem string,
) {
	body := signInPage{Next: next, Problem: problem}
	if c.SignIn.HasOIDC() {
		body.Provider = providerSignInPath(next)
	}
	c.render(w, r, status, "sign-in", page{Title: "Sign in", Body: body})
}

// providerSignInPath returns the path that redirects to the identity provider. next is the path to
// which the browser returns after the operator has signed in there.
func providerSignInPath(next string) string {
	return "/sign-in/provider?next=" + url.QueryEscape(next)
}

func (c *Console) showSignIn(w http.ResponseWriter, r *http.Request) {
	next := localPathOrRoot(r.URL.Query().Get("next"))
	nonce := r.URL.Query().Get("once")
	if nonce != "" && c.SignIn.SignInByLink(w, r, nonce) {
		c.redirectByPage(w, r, next)
		return
	}
	_, err := c.SignIn.SessionCaller(r)
	switch {
	case err == nil:
		//nolint:gosec // localPathOrRoot has made sure that it stays here
		http.Redirect(w, r, next, http.StatusSeeOther)
	case nonce == "" && c.SignIn.OIDCSessionExpired(r):
		//nolint:gosec // a path of this site
		http.Redirect(w, r, providerSignInPath(next), http.StatusSeeOther)
	case nonce != "":
		c.askToSignIn(w, r, http.StatusForbidden, next,
			"This link works once, within ten minutes. It was used before or has expired. Sign "+
				"in with the admin token or a key.")
	default:
		c.askToSignIn(w, r, http.StatusOK, next, "")
	}
}

func (c *Console) signInByToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, defaultMaxFormBytes)
	next := localPathOrRoot(r.PostFormValue("next"))
	err := c.SignIn.SignInByToken(w, r, r.PostFormValue("token"))
	switch {
	case errors.Is(err, signin.ErrUnauthenticated):
		c.askToSignIn(w, r, http.StatusForbidden, next,
			"That is neither the admin token of this executor nor a key that works.")
	case err != nil:
		c.renderCallError(w, r, err)
	default:
		http.Redirect(w, r, next, http.StatusSeeOther)
	}
}

// redirectToProvider redirects the browser to the identity provider.
func (c *Console) redirectToProvider(w http.ResponseWriter, r *http.Request) {
	if !c.SignIn.HasOIDC() {
		c.showNotFound(w, r)
		return
	}
	next := localPathOrRoot(r.URL.Query().Get("next"))
	to, err := c.SignIn.BeginOIDC(w, r, next)
	if err != nil {
		noteInLogEvent(r, "", err)
		c.askToSignIn(w, r, http.StatusServiceUnavailable, next,
			"The identity provider does not answer now. Try again in a moment, or sign in with "+
				"the admin token or a key.")
		return
	}
	//nolint:gosec // the address is the identity provider's
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// finishProviderSignIn handles the browser's return from the identity provider.
func (c *Console) finishProviderSignIn(w http.ResponseWriter, r *http.Request) {
	if !c.SignIn.HasOIDC() {
		c.showNotFound(w, r)
		return
	}
	next, err := c.SignIn.FinishOIDC(w, r)
	refused, ok := errors.AsType[*signin.RefusedError](err)
	switch {
	case ok:
		noteInLogEvent(r, "", err)
		c.askToSignIn(w, r, http.StatusForbidden, localPathOrRoot(next), refused.Detail)
	case err != nil:
		noteInLogEvent(r, "", err)
		c.askToSignIn(w, r, http.StatusServiceUnavailable, localPathOrRoot(next),
			"The identity provider does not answer now. Begin again in a moment, or sign in with "+
				"the admin token or a key.")
	default:
		c.redirectByPage(w, r, localPathOrRoot(next))
	}
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	if err := c.SignIn.SignOut(w, r); err != nil {
		noteInLogEvent(r, "", err)
		c.renderError(w, r, http.StatusServiceUnavailable, "You are still signed in",
			"The database cannot be reached now, in which the end of the session is noted. Try "+
				"again in a moment.")
		return
	}
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}

// redirectByPage sends the browser to a path by means of a page instead of an HTTP redirect. If the
// browser has followed a link on another site, an HTTP redirect would still count as a request of
// that site, and the browser would not send its SameSite=Strict cookies. It sends them only with
// requests that a page of this site has initiated.
func (c *Console) redirectByPage(w http.ResponseWriter, r *http.Request, to string) {
	c.render(w, r, http.StatusOK, "go-on", page{Title: "One moment", RedirectURL: to, Body: to})
}

// requireSession returns a handler that requires a session. A browser that follows a link on
// another site does not send the session cookie. It therefore receives a page of this site that
// loads the same URL again, this time with the cookie.
func (c *Console) requireSession(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := c.SignIn.SessionCaller(r)
		switch {
		case err == nil:
			next(w, r.WithContext(signin.WithCaller(r.Context(), caller)))
		case !errors.Is(err, signin.ErrUnauthenticated):
			c.renderCallError(w, r, err)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			c.renderError(w, r, http.StatusUnauthorized, "You are not signed in",
				"The session has expired. Sign in, then repeat the change.")
		case strings.HasPrefix(r.URL.Path, "/fragments/"):
			w.WriteHeader(http.StatusUnauthorized)
		case r.Header.Get("Sec-Fetch-Site") == "cross-site" &&
			r.Header.Get("Sec-Fetch-Mode") == "navigate":
			c.redirectByPage(w, r, localPathOrRoot(r.URL.RequestURI()))
		default:
			to := "/sign-in"
			if next := localPathOrRoot(r.URL.RequestURI()); next != "/" {
				to += "?next=" + url.QueryEscape(next)
			}
			http.Redirect(w, r, to, http.StatusSeeOther)
		}
	}
}

// localPathOrRoot returns target if it is a path of this site, with or without a query, and does
// not begin with /sign-. Otherwise, it returns "/". It rejects backslashes and control characters:
// browsers treat a backslash as a slash and skip control characters, so "/\host" would lead to
// another site.
func localPathOrRoot(target string) string {
	u, err := url.Parse(target)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") ||
		strings.ContainsFunc(target, func(c rune) bool {
			return c == '\\' || c < ' ' || c == 0x7f
		}) ||
		strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, "/sign-") {
		return "/"
	}
	return target
}
