// Package signin authenticates requests: by the admin token, a key, or a session of the console,
// which began with one of them or at an identity provider. It counts failures, and delays repeated
// ones.
package signin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/hookstart/hookstart/executor/internal/operate"
)

// Config is all that a SignIn needs.
type Config struct {
	// AdminToken signs in. Sessions are signed with a key derived from it: executors with the same
	// token accept each other's, and a new token ends them all. Empty: nobody can sign in with it.
	AdminToken string
	// Keys knows the keys. nil: there are none.
	Keys Keys
	// Once signs in without the token, once and within ten minutes. Empty: nothing does.
	Once string
	// Ended knows the sessions that were signed out. nil: signing out deletes the cookie only.
	Ended Ended
	// OIDC is the identity provider. nil: none.
	OIDC *OIDC
	// Note gets sign-ins to the console, and refused ones; a bounded number a minute, so that
	// nobody can fill the audit. nil: nothing is noted.
	Note func(ctx context.Context, caller operate.Caller, refused bool)
	// Failures counts failed sign-ins, and makes them wait. nil: nobody does.
	Failures *Failures
}

// Keys knows whose a key is. Errors mean that it cannot know now.
type Keys interface {
	ByText(ctx context.Context, text string) (by operate.Caller, known bool, err error)
	ByID(ctx context.Context, id string) (by operate.Caller, known bool, err error)
}

// Ended knows, for all executors, the sessions that were ended before their time. Errors mean that
// it cannot know now.
type Ended interface {
	End(ctx context.Context, id string, until time.Time) error
	Ended(ctx context.Context, id string) (bool, error)
}

// ErrUnknown means that a request has no valid token, key or session.
var ErrUnknown = errors.New("nobody has signed in")

// SignIn authenticates requests. It is safe for concurrent use.
type SignIn struct {
	token    [sha256.Size]byte // the hash
	config   Config
	sessions sessions
	once     *once
	origins  *http.CrossOriginProtection
	refused  *rate.Limiter
	notes    *notes
}

// notedRefusals is how many refused sign-ins are noted in a minute.
const notedRefusals = 30

// New makes one.
func New(c Config) *SignIn {
	return &SignIn{
		token:    sha256.Sum256([]byte(c.AdminToken)),
		config:   c,
		sessions: newSessions(c.AdminToken),
		once:     newOnce(c.Once),
		origins:  http.NewCrossOriginProtection(),
		refused:  rate.NewLimiter(rate.Every(time.Minute/notedRefusals), notedRefusals),
		notes:    newNotes(),
	}
}

// Call returns the caller of the API, by the admin token, a key or a session. It fails with
// ErrUnknown, or because keys cannot be read now. A wrong token waits. A session is refused if the
// page of another site makes the call.
func (s *SignIn) Call(r *http.Request) (operate.Caller, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		if s.origins.Check(r) != nil || fromAnotherPage(r) {
			return operate.Caller{}, ErrUnknown
		}
		return s.Visit(r)
	}
	scheme, token, _ := strings.Cut(header, " ")
	if strings.EqualFold(scheme, "Bearer") {
		by, _, err := s.byToken(r.Context(), strings.Trim(token, " "))
		if !errors.Is(err, ErrUnknown) {
			return by, err
		}
	}
	s.failed(r, AtAPI)
	return operate.Caller{}, ErrUnknown
}

// fromAnotherPage reports whether a page of another origin makes the call, also one of a host
// beside this one, which gets the session. It cannot read the answer, but some answers are shown
// only once.
func fromAnotherPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// Visit says who asks for a page, by the session. It fails as Call does.
func (s *SignIn) Visit(r *http.Request) (operate.Caller, error) {
	of, valid := s.sessions.of(r)
	if !valid {
		return operate.Caller{}, ErrUnknown
	}
	if err := s.still(r.Context(), of); err != nil {
		return operate.Caller{}, err
	}
	switch {
	case of.Kind == operate.AdminToken:
		return operate.TheAdmin(), nil
	case of.Kind == operate.Key && s.config.Keys != nil:
		by, known, err := s.config.Keys.ByID(r.Context(), of.KeyID)
		if err == nil && !known {
			err = ErrUnknown
		}
		return by, err
	case of.Kind == operate.User && s.config.OIDC != nil && of.User != nil:
		return s.config.OIDC.caller(*of.User)
	default:
		return operate.Caller{}, ErrUnknown
	}
}

// still fails with ErrUnknown if a session was signed out.
func (s *SignIn) still(ctx context.Context, of session) error {
	if s.config.Ended == nil {
		return nil
	}
	ended, err := s.config.Ended.Ended(ctx, of.Nonce)
	if err == nil && ended {
		err = ErrUnknown
	}
	return err
}

// Still returns a function that fails once the session was signed out by which a request was made.
// It returns nil if the request was made otherwise.
func (s *SignIn) Still(r *http.Request) func(context.Context) error {
	of, valid := s.sessions.of(r)
	if r.Header.Get("Authorization") != "" || !valid {
		return nil
	}
	return func(ctx context.Context) error { return s.still(ctx, of) }
}

// Ends says when the session ends by which Call and Visit know who makes a request; zero: it is not
// by one.
func (s *SignIn) Ends(r *http.Request) time.Time {
	of, valid := s.sessions.of(r)
	if r.Header.Get("Authorization") != "" || !valid {
		return time.Time{}
	}
	return time.Unix(of.Ends, 0)
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

// ByToken begins a session if the text is the admin token or a key. It fails as Call does; a wrong
// text waits.
func (s *SignIn) ByToken(w http.ResponseWriter, r *http.Request, token string) error {
	by, of, err := s.byToken(r.Context(), strings.TrimSpace(token))
	switch {
	case err == nil:
		s.begin(w, r, of, by)
	case errors.Is(err, ErrUnknown):
		s.failed(r, AtConsole)
	}
	return err
}

// byToken says whose the admin token or a key is, and the session that it begins.
func (s *SignIn) byToken(ctx context.Context, token string) (operate.Caller, session, error) {
	if s.isAdminToken(token) {
		return operate.TheAdmin(), session{Kind: operate.AdminToken}, nil
	}
	if s.config.Keys == nil {
		return operate.Caller{}, session{}, ErrUnknown
	}
	by, known, err := s.config.Keys.ByText(ctx, token)
	if err == nil && !known {
		err = ErrUnknown
	}
	return by, session{Kind: operate.Key, KeyID: by.ID}, err
}

// ByLink begins a session if the nonce is that of the link that signs in once. HEAD does not use it
// up. With a session, a wrong one does not count as a failure.
func (s *SignIn) ByLink(w http.ResponseWriter, r *http.Request, nonce string) bool {
	if r.Method == http.MethodGet && s.once.consume(nonce) {
		s.begin(w, r, session{Kind: operate.AdminToken}, operate.TheAdmin())
		return true
	}
	if _, valid := s.sessions.of(r); !valid {
		s.failed(r, AtConsole)
	}
	return false
}

// begin begins a session, and notes whose.
func (s *SignIn) begin(w http.ResponseWriter, r *http.Request, of session, caller operate.Caller) {
	lifetime := sessionLifetime
	if of.Kind == operate.User {
		lifetime = min(s.config.OIDC.config.Session, sessionLifetime)
	}
	s.sessions.start(w, r, of, lifetime)
	if s.config.Note != nil && s.notes.take(caller) {
		s.config.Note(r.Context(), caller, false)
	}
}

// Out ends the session, at every executor and with every copy of its cookie. If it fails, the
// session goes on.
func (s *SignIn) Out(w http.ResponseWriter, r *http.Request) error {
	if of, valid := s.sessions.of(r); valid && s.config.Ended != nil {
		if err := s.config.Ended.End(r.Context(), of.Nonce, time.Unix(of.Ends, 0)); err != nil {
			return err
		}
	}
	s.sessions.end(w, r)
	return nil
}

// IsSecret says whether a text is what signs in, in clear.
func (s *SignIn) IsSecret(text string) bool { return text != "" && text == s.config.AdminToken }

// isAdminToken compares hashes in constant time, so that the time tells nothing about the token or
// its length.
func (s *SignIn) isAdminToken(token string) bool {
	given := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(given[:], s.token[:]) == 1 && s.config.AdminToken != ""
}

func (s *SignIn) failed(r *http.Request, at string) {
	if at == AtConsole && s.config.Note != nil && s.refused.Allow() {
		s.config.Note(r.Context(), operate.Caller{Kind: "unknown"}, true)
	}
	if s.config.Failures != nil {
		s.config.Failures.Failed(r.Context(), at, r.RemoteAddr)
	}
}
