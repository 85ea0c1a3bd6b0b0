package signin

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strings"
	"time"
)

const (
	sessionCookie = "hookstart_session"
	// secureCookie is the session's name over https. By its prefix the browser sends it over https
	// only, and takes it from no other host.
	secureCookie    = "__Host-" + sessionCookie
	sessionLifetime = 12 * time.Hour
)

// overHTTPS says whether the browser's side of a request is https: at this listener, or at a
// proxy that says so. A client that claims it can only lose its own session by that.
func overHTTPS(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	return r.TLS != nil || strings.EqualFold(strings.TrimSpace(first), "https")
}

// cookieName is under which name a request's session is looked for and set.
func cookieName(r *http.Request) string {
	if overHTTPS(r) {
		return secureCookie
	}
	return sessionCookie
}

// sessions are kept by the browser alone: a cookie says when it ends, and is signed.
// There is nothing that executors would have to share but the admin token; in turn,
// signing out forgets the cookie and cannot call a copied one back before it ends.
type sessions struct {
	key []byte
	now func() time.Time
}

func newSessions(adminToken string) sessions {
	key, err := hkdf.Key(sha256.New, []byte(adminToken), nil, "hookstart console session 1", sha256.Size)
	if err != nil {
		panic(err) // only for keys that are far too long
	}
	return sessions{key: key, now: time.Now}
}

// A session is: when it ends (8 bytes, Unix seconds), 16 random bytes, and their
// HMAC-SHA256.
const sessionBody = 8 + 16

// issue makes a session that begins now.
func (s sessions) issue() string {
	session := make([]byte, sessionBody, sessionBody+sha256.Size)
	ends := s.now().Add(sessionLifetime).Unix()
	binary.BigEndian.PutUint64(session, uint64(ends)) //nolint:gosec // it is after 1970
	_, _ = rand.Read(session[8:])                     // never fails: crypto/rand says so
	return base64.RawURLEncoding.EncodeToString(append(session, s.sign(session)...))
}

// valid says whether a session was issued by an executor with the same token and has
// not ended.
func (s sessions) valid(value string) bool {
	session, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil || len(session) != sessionBody+sha256.Size || !hmac.Equal(session[sessionBody:], s.sign(session[:sessionBody])) {
		return false
	}
	ends := binary.BigEndian.Uint64(session)
	return s.now().Unix() < int64(ends) //nolint:gosec // signed: it is what issue wrote
}

func (s sessions) sign(body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(body)
	return mac.Sum(nil)
}

// of says whether a request has a valid session.
func (s sessions) of(r *http.Request) bool {
	for _, cookie := range r.CookiesNamed(cookieName(r)) {
		if s.valid(cookie.Value) {
			return true
		}
	}
	return false
}

func (s sessions) start(w http.ResponseWriter, r *http.Request) {
	setSession(w, r, s.issue(), int(sessionLifetime/time.Second))
}

func (s sessions) end(w http.ResponseWriter, r *http.Request) { setSession(w, r, "", -1) }

func setSession(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // not Secure over http: the browser would drop it, on loopback too
		Name: cookieName(r), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: overHTTPS(r),
	})
}
