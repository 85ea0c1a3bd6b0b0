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
	// browser keeps any session: one that began at an identity provider ends earlier, and is
	// renewed there.
	sessionLifetime = 12 * time.Hour
)

// overHTTPS reports whether the browser uses https, with this listener or with a proxy. A client
// that lies about it can only lose its own session.
func overHTTPS(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	return r.TLS != nil || strings.EqualFold(strings.TrimSpace(first), "https")
}

// cookieName is the full name of a cookie. With the prefix, browsers send it over https only, and
// accept it from no other host.
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

// sessions are kept by the browser alone, in a signed cookie with the caller and the end. Executors
// need to share only the admin token, and which sessions were signed out: see Ended.
type sessions struct {
	key func() []byte // slow the first time, which is when the first session is read or issued
	now func() time.Time
}

// session is what a cookie says.
type session struct {
	Ends  int64        `json:"ends"`  // Unix seconds
	Nonce string       `json:"nonce"` // of this session alone: its ID
	Kind  operate.Kind `json:"kind"`
	// KeyID is the key with which it began.
	KeyID string `json:"keyId,omitempty"`
	// User is who signed in at an identity provider.
	User *user `json:"user,omitempty"`
}

// user is who signed in at an identity provider, and by which rule.
type user struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Rule string `json:"rule"` // as configured: it must still be
}

func newSessions(adminToken string) sessions {
	return sessions{key: sync.OnceValue(func() []byte {
		return signingKey(adminToken)
	}), now: time.Now}
}

// stretching slows down guesses of the admin token, which everybody with a cookie, viewers too, can
// check offline.
const stretching = 600_000

var signingKeys sync.Map // admin token → what was made of it: only the first time is slow

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

// issue makes a session that begins now. In the cookie are JSON and its HMAC-SHA256.
func (s sessions) issue(of session, lifetime time.Duration) string {
	of.Ends, of.Nonce = s.now().Add(lifetime).Unix(), rand.Text()
	return s.seal(sessionPurpose, of)
}

// read returns a session that was issued by an executor with the same token and has not ended.
func (s sessions) read(value string) (of session, valid bool) {
	valid = s.open(sessionPurpose, value, &of) && s.now().Unix() < of.Ends
	return of, valid
}

// sessionPurpose keeps a session from being taken for something else that is signed, and that for
// it.
const sessionPurpose = "session"

// seal signs a value for one purpose.
func (s sessions) seal(purpose string, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // structs of texts and numbers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(append(s.sign(purpose, text), text...))
}

// open reads what seal has signed for the same purpose.
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

// of is a request's session.
func (s sessions) of(r *http.Request) (of session, valid bool) {
	for _, cookie := range r.CookiesNamed(cookieName(r, sessionCookie)) {
		if of, valid = s.read(cookie.Value); valid {
			return of, true
		}
	}
	return session{}, false
}

// ended is a request's session that has ended, by itself, and not for longer than a session lasts.
func (s sessions) ended(r *http.Request) (of session, known bool) {
	for _, cookie := range r.CookiesNamed(cookieName(r, sessionCookie)) {
		if s.open(sessionPurpose, cookie.Value, &of) {
			past := s.now().Sub(time.Unix(of.Ends, 0))
			return of, past >= 0 && past < sessionLifetime
		}
	}
	return session{}, false
}

func (s sessions) start(
	w http.ResponseWriter, r *http.Request, of session, lifetime time.Duration,
) {
	setCookie(w, r, sessionCookie, s.issue(of, lifetime), int(sessionLifetime/time.Second),
		http.SameSiteStrictMode)
}

func (s sessions) end(w http.ResponseWriter, r *http.Request) {
	setCookie(w, r, sessionCookie, "", -1, http.SameSiteStrictMode)
}
