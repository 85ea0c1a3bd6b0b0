package signin

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

const (
	sessionCookie = "hookstart_session"
	// sessionLifetime is the lifetime of a session that began with the admin token or a key. It is
	// also how long a browser keeps the cookie of any session. A session from an identity provider
	// expires earlier, and is renewed by another sign-in at the provider.
	sessionLifetime = 12 * time.Hour
)

// usesHTTPS reports whether the browser uses https, either to this listener or to a proxy in front
// of it. The proxy's X-Forwarded-Proto header is trusted, because a client that forges it only
// loses its own session.
func usesHTTPS(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	return r.TLS != nil || strings.EqualFold(strings.TrimSpace(first), "https")
}

// cookieName returns the full name of a cookie. Over https, the name has the prefix __Host-.
// Browsers then send the cookie only over https, and do not let other hosts set it.
func cookieName(r *http.Request, name string) string {
	if usesHTTPS(r) {
		return "__Host-" + name
	}
	return name
}

func setCookie(
	w http.ResponseWriter, r *http.Request, name, value string, maxAge int, site http.SameSite,
) {
	//nolint:gosec // not Secure over http: the browser would drop it, on loopback too
	http.SetCookie(w,
		&http.Cookie{
			Name: cookieName(r, name), Value: value, Path: "/", MaxAge: maxAge,
			HttpOnly: true, SameSite: site, Secure: usesHTTPS(r),
		})
}

// sessionSigner issues and verifies sessions. A session is stored only in the browser, in a signed
// cookie with the caller and the expiry time. The executors share only two things: the admin token,
// from which the signing key is derived, and the list of sessions that were signed out.
type sessionSigner struct {
	key func() []byte // returns the signing key; the first call is slow, because it derives the key
	now func() time.Time
}

// session is the content of a session cookie.
type session struct {
	Ends  int64              `json:"ends"`  // Unix seconds
	Nonce string             `json:"nonce"` // random ID of the session
	Kind  operate.CallerKind `json:"kind"`
	// KeyID is the ID of the key that began the session. "" means that it did not begin with a key.
	KeyID string `json:"keyId,omitempty"`
	// User is the user who signed in at an identity provider. nil means that the session did not
	// begin at a provider.
	User *user `json:"user,omitempty"`
}

// user is a user who signed in at an identity provider, and the rule that admitted them.
type user struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Rule string `json:"rule"` // the rule as a string; it must still be configured
}

func newSessionSigner(adminToken string) sessionSigner {
	return sessionSigner{key: sync.OnceValue(func() []byte {
		return signingKey(adminToken)
	}), now: time.Now}
}

// pbkdf2Iterations is the number of PBKDF2 iterations. The number is high to slow down guessing the
// admin token: anyone with a session cookie, even a viewer, can check guesses offline.
const pbkdf2Iterations = 600_000

// signingKeys caches the keys that sign sessions, by the admin token from which they are derived.
// Deriving a key is slow.
var signingKeys sync.Map

func signingKey(adminToken string) []byte {
	if known, ok := signingKeys.Load(adminToken); ok {
		return known.([]byte) //nolint:forcetypeassert,errcheck // nothing else is stored
	}
	key, err := pbkdf2.Key(sha256.New, adminToken, []byte("hookstart console session 2"),
		pbkdf2Iterations, sha256.Size)
	if err != nil {
		panic(err) // pbkdf2.Key fails only if the key length is far too large
	}
	signingKeys.Store(adminToken, key)
	return key
}

// newCookieValue sets the expiry time and the nonce of a new session, and returns the value of its
// cookie.
func (s sessionSigner) newCookieValue(sess session, lifetime time.Duration) string {
	sess.Ends, sess.Nonce = s.now().Add(lifetime).Unix(), rand.Text()
	return s.signValue(sessionSigningPurpose, sess)
}

// parseCookieValue decodes a session. valid reports whether an executor with the same admin token
// issued the session and the session has not expired.
func (s sessionSigner) parseCookieValue(value string) (sess session, valid bool) {
	valid = s.verifyValue(sessionSigningPurpose, value, &sess) && s.now().Unix() < sess.Ends
	return sess, valid
}

// sessionSigningPurpose is the purpose for which sessions are signed. A signature for one purpose
// is not valid for another, so no other signed value is accepted as a session.
const sessionSigningPurpose = "session"

// signValue encodes a value as JSON and signs it for a purpose. It returns the HMAC-SHA256 and the
// JSON, encoded together in base64.
func (s sessionSigner) signValue(purpose string, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // structs of strings and numbers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(append(s.sign(purpose, text), text...))
}

// verifyValue decodes the result of signValue into value, and reports whether the signature is
// valid for the purpose.
func (s sessionSigner) verifyValue(purpose, sealed string, value any) bool {
	text, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || len(text) < sha256.Size ||
		!hmac.Equal(text[:sha256.Size], s.sign(purpose, text[sha256.Size:])) {
		return false
	}
	return json.Unmarshal(text[sha256.Size:], value) == nil
}

func (s sessionSigner) sign(purpose string, text []byte) []byte {
	mac := hmac.New(sha256.New, s.key())
	mac.Write([]byte(purpose))
	mac.Write([]byte{0})
	mac.Write(text)
	return mac.Sum(nil)
}

// fromRequest returns the session in the request's cookies, and reports whether it is valid.
func (s sessionSigner) fromRequest(r *http.Request) (sess session, valid bool) {
	for _, cookie := range r.CookiesNamed(cookieName(r, sessionCookie)) {
		if sess, valid = s.parseCookieValue(cookie.Value); valid {
			return sess, true
		}
	}
	return session{}, false
}

// expiredFromRequest returns the session in the request's cookies. known reports whether the
// session's signature is valid and the session has expired, but no longer ago than sessionLifetime.
func (s sessionSigner) expiredFromRequest(r *http.Request) (sess session, known bool) {
	for _, cookie := range r.CookiesNamed(cookieName(r, sessionCookie)) {
		if s.verifyValue(sessionSigningPurpose, cookie.Value, &sess) {
			past := s.now().Sub(time.Unix(sess.Ends, 0))
			return sess, past >= 0 && past < sessionLifetime
		}
	}
	return session{}, false
}

func (s sessionSigner) setSessionCookie(
	w http.ResponseWriter, r *http.Request, sess session, lifetime time.Duration,
) {
	setCookie(w, r, sessionCookie, s.newCookieValue(sess, lifetime),
		int(sessionLifetime/time.Second),
		http.SameSiteStrictMode)
}

func (s sessionSigner) clearSessionCookie(w http.ResponseWriter, r *http.Request) {
	setCookie(w, r, sessionCookie, "", -1, http.SameSiteStrictMode)
}
