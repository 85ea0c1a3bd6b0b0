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

	"github.com/hookstart/hookstart/executor/internal/operate"
)

const (
	sessionCookie = "hookstart_session"
	// sessionLifetime is how long a session of the admin token or a key lasts, and how long a
	// browser keeps any session. A session that began at an identity provider ends earlier, and is
	// renewed there.
	sessionLifetime = 12 * time.Hour
)

// overHTTPS reports whether the browser uses https, with this listener or with a proxy. A client
// that lies about it can only lose its own session.
func overHTTPS(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	return r.TLS != nil || strings.EqualFold(strings.TrimSpace(first), "https")
}

// cookieName returns the full name of a cookie. With the prefix, browsers send it over https only,
// and accept it from no other host.
func cookieName(r *http.Request, name string) string {
	if overHTTPS(r) {
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
			HttpOnly: true, SameSite: site, Secure: overHTTPS(r),
		})
}

// sessions issues and reads sessions. A session is stored only by the browser, in a signed cookie
// with the caller and the time of its end. Executors share only the admin token, and the sessions
// that were signed out: see Ended.
type sessions struct {
	key func() []byte // slow at the first call, when the first session is read or issued
	now func() time.Time
}

// session is the content of a session's cookie.
type session struct {
	Ends  int64        `json:"ends"`  // Unix seconds
	Nonce string       `json:"nonce"` // the ID of the session, which is random
	Kind  operate.Kind `json:"kind"`
	// KeyID is the ID of the key that began the session. "" means that no key did.
	KeyID string `json:"keyId,omitempty"`
	// User is the user who signed in at an identity provider. nil means that the session did not
	// begin there.
	User *user `json:"user,omitempty"`
}

// user is a user who signed in at an identity provider, with the rule that admitted the user.
type user struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Rule string `json:"rule"` // the text of the rule, which must still be configured
}

func newSessions(adminToken string) sessions {
	return sessions{key: sync.OnceValue(func() []byte {
		return signingKey(adminToken)
	}), now: time.Now}
}

// stretching is the number of PBKDF2 iterations. It slows down guesses of the admin token, which
// everybody who has a cookie, a viewer too, can check offline.
const stretching = 600_000

// signingKeys holds, by admin token, the keys that were derived: only the first derivation is slow.
var signingKeys sync.Map

func signingKey(adminToken string) []byte {
	if known, ok := signingKeys.Load(adminToken); ok {
		return known.([]byte) //nolint:forcetypeassert,errcheck // nothing else is stored
	}
	key, err := pbkdf2.Key(sha256.New, adminToken, []byte("hookstart console session 2"),
		stretching, sha256.Size)
	if err != nil {
		panic(err) // only for keys that are far too long
	}
	signingKeys.Store(adminToken, key)
	return key
}

// issue returns the cookie of a session that begins now: its JSON and the JSON's HMAC-SHA256.
func (s sessions) issue(sess session, lifetime time.Duration) string {
	sess.Ends, sess.Nonce = s.now().Add(lifetime).Unix(), rand.Text()
	return s.seal(sessionPurpose, sess)
}

// read returns a session that was issued by an executor with the same token and has not ended.
func (s sessions) read(value string) (sess session, valid bool) {
	valid = s.open(sessionPurpose, value, &sess) && s.now().Unix() < sess.Ends
	return sess, valid
}

// sessionPurpose is the purpose of a session's signature. A signature for one purpose is not valid
// for another.
const sessionPurpose = "session"

// seal signs a value for one purpose.
func (s sessions) seal(purpose string, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // structs of texts and numbers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(append(s.sign(purpose, text), text...))
}

// open reads a value that seal has signed for the same purpose, and reports whether the signature
// is valid.
func (s sessions) open(purpose, sealed string, value any) bool {
	text, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || len(text) < sha256.Size ||
		!hmac.Equal(text[:sha256.Size], s.sign(purpose, text[sha256.Size:])) {
		return false
	}
	return json.Unmarshal(text[sha256.Size:], value) == nil
}

func (s sessions) sign(purpose string, text []byte) []byte {
	mac := hmac.New(sha256.New, s.key())
	mac.Write([]byte(purpose))
	mac.Write([]byte{0})
	mac.Write(text)
	return mac.Sum(nil)
}

// fromRequest returns a request's session, and reports whether it has a valid one.
func (s sessions) fromRequest(r *http.Request) (sess session, valid bool) {
	for _, cookie := range r.CookiesNamed(cookieName(r, sessionCookie)) {
		if sess, valid = s.read(cookie.Value); valid {
			return sess, true
		}
	}
	return session{}, false
}

// ended returns a request's session if it has expired, no longer ago than the lifetime of a
// session. It reports whether there is one.
func (s sessions) ended(r *http.Request) (sess session, known bool) {
	for _, cookie := range r.CookiesNamed(cookieName(r, sessionCookie)) {
		if s.open(sessionPurpose, cookie.Value, &sess) {
			past := s.now().Sub(time.Unix(sess.Ends, 0))
			return sess, past >= 0 && past < sessionLifetime
		}
	}
	return session{}, false
}

func (s sessions) start(
	w http.ResponseWriter, r *http.Request, sess session, lifetime time.Duration,
) {
	setCookie(w, r, sessionCookie, s.issue(sess, lifetime), int(sessionLifetime/time.Second),
		http.SameSiteStrictMode)
}

func (s sessions) end(w http.ResponseWriter, r *http.Request) {
	setCookie(w, r, sessionCookie, "", -1, http.SameSiteStrictMode)
}
