package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

const maxFormBytes = 16 << 10

// signIn is the data of the sign-in page.
type signIn struct {
	Next    string
	Problem string
}

func (c *Console) showSignIn(w http.ResponseWriter, r *http.Request) {
	next := localPath(r.URL.Query().Get("next"))
	switch nonce := r.URL.Query().Get("once"); {
	case nonce != "" && r.Method == http.MethodGet && c.once.consume(nonce):
		c.sessions.start(w, r)
		c.goOn(w, r, next)
	case nonce != "" && !c.sessions.of(r):
		c.signInFailed(r)
		c.render(w, r, http.StatusForbidden, "sign-in", page{
			Title: "Sign in",
			Body:  signIn{next, "This link signs in only once and within ten minutes: it has been used, or is too old. Sign in with the admin token."},
		})
	case c.sessions.of(r):
		http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // localPath has made sure that it stays here
	default:
		c.render(w, r, http.StatusOK, "sign-in", page{Title: "Sign in", Body: signIn{Next: next}})
	}
}

func (c *Console) doSignIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	next := localPath(r.PostFormValue("next"))
	// Hashes have one length: how long this takes says nothing of the token.
	given := sha256.Sum256([]byte(strings.TrimSpace(r.PostFormValue("token"))))
	if subtle.ConstantTimeCompare(given[:], c.adminToken[:]) != 1 || c.AdminToken == "" {
		c.signInFailed(r)
		c.render(w, r, http.StatusForbidden, "sign-in", page{
			Title: "Sign in", Body: signIn{next, "That is not the admin token of this executor."},
		})
		return
	}
	c.sessions.start(w, r)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// signInFailed counts a failed sign-in, which then waits.
func (c *Console) signInFailed(r *http.Request) {
	if c.Failures != nil {
		c.Failures.Failed(r.Context(), signin.AtConsole, r.RemoteAddr)
	}
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	c.sessions.end(w, r)
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}

// goOn is a redirect by the page: the browser sends a SameSite=Strict cookie only with
// what this site begins, and a redirect is still begun by whoever made the link.
func (c *Console) goOn(w http.ResponseWriter, r *http.Request, to string) {
	c.render(w, r, http.StatusOK, "go-on", page{Title: "One moment", Refresh: to, Body: to})
}

// signedIn lets nobody in without a session. Whoever comes by a link on another site is
// asked again from here, because the browser has kept the session back.
func (c *Console) signedIn(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case c.sessions.of(r):
			next(w, r.WithContext(signin.WithCaller(r.Context(), operate.Caller{Kind: operate.AdminToken})))
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			c.fail(w, r, http.StatusUnauthorized, "You are not signed in", "The session has ended. Sign in, and do it again.")
		case strings.HasPrefix(r.URL.Path, "/fragments/"):
			w.WriteHeader(http.StatusUnauthorized)
		case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") == "navigate":
			c.goOn(w, r, localPath(r.URL.RequestURI()))
		default:
			to := "/sign-in"
			if next := localPath(r.URL.RequestURI()); next != "/" {
				to += "?next=" + url.QueryEscape(next)
			}
			http.Redirect(w, r, to, http.StatusSeeOther)
		}
	}
}

// localPath is a path of this site with its query, else "/". Browsers take a backslash
// for a slash and skip control characters, so that "/\host" leads elsewhere, too.
func localPath(target string) string {
	u, err := url.Parse(target)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") ||
		strings.ContainsFunc(target, func(c rune) bool { return c == '\\' || c < ' ' || c == 0x7f }) ||
		strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, "/sign-") {
		return "/"
	}
	return target
}

// onceLifetime is how long a link signs in: whoever started the program looks at what it
// prints then. Later, it is in a journal that others may read.
const onceLifetime = 10 * time.Minute

// once is a nonce that works one time, and for a while.
type once struct {
	hash [sha256.Size]byte
	left atomic.Bool
	ends time.Time
	now  func() time.Time
}

func newOnce(nonce string) *once {
	o := &once{hash: sha256.Sum256([]byte(nonce)), ends: time.Now().Add(onceLifetime), now: time.Now}
	o.left.Store(nonce != "")
	return o
}

// consume says whether it is the nonce, for the first time and in time.
func (o *once) consume(nonce string) bool {
	given := sha256.Sum256([]byte(nonce))
	return subtle.ConstantTimeCompare(given[:], o.hash[:]) == 1 && o.now().Before(o.ends) && o.left.CompareAndSwap(true, false)
}
