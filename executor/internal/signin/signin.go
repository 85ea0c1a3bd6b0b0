// Package signin decides who makes a request: by the admin token, or by a session of the
// console that began with it. It counts what fails, and slows down who tries again and again.
package signin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/hookstart/hookstart/executor/internal/operate"
)

// Config is all that a SignIn needs.
type Config struct {
	// AdminToken signs in. Sessions are signed with a key made of it: executors with the same
	// token accept each other's, and a new token ends them all. Empty: nobody can sign in.
	AdminToken string
	// Once signs in without the token, once and within ten minutes. Empty: nothing does.
	Once string
	// Failures counts failed sign-ins, and makes them wait. nil: nobody does.
	Failures *Failures
}

// SignIn tells operators from strangers. It is safe for concurrent use.
type SignIn struct {
	token    [sha256.Size]byte // the hash
	config   Config
	sessions sessions
	once     *once
	origins  *http.CrossOriginProtection
}

// New makes one.
func New(c Config) *SignIn {
	return &SignIn{
		token: sha256.Sum256([]byte(c.AdminToken)), config: c, sessions: newSessions(c.AdminToken), once: newOnce(c.Once),
		origins: http.NewCrossOriginProtection(),
	}
}

// Call says who calls the API, by the admin token or by a session. A wrong token waits. With a
// session, another site may make the browser call: that is refused for what changes something.
func (s *SignIn) Call(r *http.Request) (caller operate.Caller, known bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case s.isAdminToken(strings.Trim(token, " ")) && strings.EqualFold(scheme, "Bearer"),
		s.sessions.of(r) && s.origins.Check(r) == nil:
		return operate.TheAdmin(), true
	case r.Header.Get("Authorization") != "":
		s.failed(r, AtAPI)
	}
	return operate.Caller{}, false
}

// Visit says who asks for a page, by the session.
func (s *SignIn) Visit(r *http.Request) (caller operate.Caller, known bool) {
	if s.sessions.of(r) {
		return operate.TheAdmin(), true
	}
	return operate.Caller{}, false
}

// SameOrigin lets no other site change anything; denied answers those.
func (s *SignIn) SameOrigin(next, denied http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.origins.Check(r) != nil {
			denied.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ByToken begins a session if the token is right. A wrong one waits.
func (s *SignIn) ByToken(w http.ResponseWriter, r *http.Request, token string) bool {
	if !s.isAdminToken(strings.TrimSpace(token)) {
		s.failed(r, AtConsole)
		return false
	}
	s.sessions.start(w, r)
	return true
}

// ByLink begins a session if the nonce is that of the link which signs in once. It is not used
// up by a request that only looks. Who has a session already has not failed.
func (s *SignIn) ByLink(w http.ResponseWriter, r *http.Request, nonce string) bool {
	if r.Method == http.MethodGet && s.once.consume(nonce) {
		s.sessions.start(w, r)
		return true
	}
	if !s.sessions.of(r) {
		s.failed(r, AtConsole)
	}
	return false
}

// Out ends the session.
func (s *SignIn) Out(w http.ResponseWriter, r *http.Request) { s.sessions.end(w, r) }

// IsSecret says whether a text is what signs in, in clear.
func (s *SignIn) IsSecret(text string) bool { return text != "" && text == s.config.AdminToken }

// isAdminToken compares hashes, in constant time: neither the token's content nor its length
// shows in how long that takes.
func (s *SignIn) isAdminToken(token string) bool {
	given := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(given[:], s.token[:]) == 1 && s.config.AdminToken != ""
}

func (s *SignIn) failed(r *http.Request, at string) {
	if s.config.Failures != nil {
		s.config.Failures.Failed(r.Context(), at, r.RemoteAddr)
	}
}
