// Package signin authenticates requests by the admin token, a key, or a console session. A session
// begins with the admin token or a key, or with a sign-in at an identity provider. The package also
// counts failed sign-ins, and delays the responses if there are many.
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

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

// Config configures an Authenticator.
type Config struct {
	// AdminToken is the token with which the administrator signs in. The key that signs sessions is
	// derived from it. Executors with the same token therefore accept each other's sessions, and a
	// new token ends all sessions. "" means that there is no admin token.
	AdminToken string
	// Keys looks up API keys. nil means that there are none.
	Keys APIKeys
	// OneTimeNonce is a nonce with which the administrator can sign in once, within ten minutes
	// after New was called. "" means that there is none.
	OneTimeNonce string
	// RevokedSessions stores the sessions that were signed out, so that copies of their cookies are
	// refused. nil means that signing out only deletes the browser's cookie.
	RevokedSessions RevokedSessions
	// OIDC is the identity provider. nil means that there is none.
	OIDC *OIDC
	// OnSignIn is called for successful and refused sign-ins to the console. The number of calls
	// per minute is limited, so that an attacker cannot fill the audit log. nil means that sign-ins
	// are not reported.
	OnSignIn func(ctx context.Context, caller operate.Caller, refused bool)
	// FailureThrottle counts failed sign-ins and delays the responses to them. nil means no delay.
	FailureThrottle *FailureThrottle
}

// APIKeys looks up the caller that an API key authenticates. Its methods return an error if the
// keys are unavailable.
type APIKeys interface {
	// CallerByKey returns the caller of the key with the given secret text. known is false if there
	// is no such key, or it has expired.
	CallerByKey(ctx context.Context, text string) (caller operate.Caller, known bool, err error)
	// CallerByKeyID is like CallerByKey, for the key with the given ID. Sessions store this ID
	// instead of the secret text.
	CallerByKeyID(ctx context.Context, id string) (caller operate.Caller, known bool, err error)
}

// RevokedSessions stores, for all executors, the sessions that were signed out before they expired.
// The ID of a session is the random nonce in its cookie. The methods return an error if the store
// is unavailable.
type RevokedSessions interface {
	// Revoke records that a session was signed out. until is the time at which the session would
	// have expired anyway; afterwards, the entry may be removed.
	Revoke(ctx context.Context, id string, until time.Time) error
	// IsRevoked reports whether a session has been signed out.
	IsRevoked(ctx context.Context, id string) (bool, error)
}

// ErrUnauthenticated means that a request has no valid token, key or session.
var ErrUnauthenticated = errors.New("the request has no valid token, key or session")

// Authenticator authenticates requests. It is safe for concurrent use.
type Authenticator struct {
	tokenHash             [sha256.Size]byte // hash of the admin token
	config                Config
	sessions              sessionSigner
	linkNonce             *oneTimeNonce
	crossOriginProtection *http.CrossOriginProtection
	refusalAuditLimiter   *rate.Limiter
	signInAuditLimiter    *signInAuditLimiter
}

// maxAuditedRefusalsPerMinute is the maximum number of refused sign-ins that are recorded per
// minute, from all callers together.
const maxAuditedRefusalsPerMinute = 30

// New returns an Authenticator with the given configuration.
func New(c Config) *Authenticator {
	return &Authenticator{
		tokenHash:             sha256.Sum256([]byte(c.AdminToken)),
		config:                c,
		sessions:              newSessionSigner(c.AdminToken),
		linkNonce:             newOneTimeNonce(c.OneTimeNonce),
		crossOriginProtection: http.NewCrossOriginProtection(),
		refusalAuditLimiter: rate.NewLimiter(rate.Every(time.Minute/maxAuditedRefusalsPerMinute),
			maxAuditedRefusalsPerMinute),
		signInAuditLimiter: newSignInAuditLimiter(),
	}
}

// APICaller returns the caller of an API request. It accepts the admin token, a key or a session,
// but ignores the session if the request comes from a page of another origin. If none of them is
// valid, it returns ErrUnauthenticated, and delays the response if the token was wrong. It returns
// another error if it cannot look up keys or sessions.
func (s *Authenticator) APICaller(r *http.Request) (operate.Caller, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		if s.crossOriginProtection.Check(r) != nil || isCrossOrigin(r) {
			return operate.Caller{}, ErrUnauthenticated
		}
		return s.SessionCaller(r)
	}
	scheme, token, _ := strings.Cut(header, " ")
	if strings.EqualFold(scheme, "Bearer") {
		caller, _, err := s.callerOfToken(r.Context(), strings.Trim(token, " "))
		if !errors.Is(err, ErrUnauthenticated) {
			return caller, err
		}
	}
	s.auditAndDelayFailure(r, FailedAtAPI)
	return operate.Caller{}, ErrUnauthenticated
}

// isCrossOrigin reports whether the request comes from a page of another origin. This includes
// pages on other hosts of the same site, although the browser sends the session's cookie with their
// requests. The session must not authenticate such a request, even if the request changes nothing.
// Its response may contain a value that is shown only once, and the value would be lost, because
// the page cannot read the response.
func isCrossOrigin(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// SessionCaller returns the caller of a request for a page, authenticated by the session. It
// returns the same errors as APICaller.
func (s *Authenticator) SessionCaller(r *http.Request) (operate.Caller, error) {
	sess, valid := s.sessions.fromRequest(r)
	if !valid {
		return operate.Caller{}, ErrUnauthenticated
	}
	if err := s.checkNotSignedOut(r.Context(), sess); err != nil {
		return operate.Caller{}, err
	}
	switch {
	case sess.Kind == operate.CallerKindAdminToken:
		return operate.AdminCaller(), nil
	case sess.Kind == operate.CallerKindKey && s.config.Keys != nil:
		caller, known, err := s.config.Keys.CallerByKeyID(r.Context(), sess.KeyID)
		if err == nil && !known {
			err = ErrUnauthenticated
		}
		return caller, err
	case sess.Kind == operate.CallerKindUser && s.config.OIDC != nil && sess.User != nil:
		return s.config.OIDC.callerOfUser(*sess.User)
	default:
		return operate.Caller{}, ErrUnauthenticated
	}
}

// checkNotSignedOut returns ErrUnauthenticated if the session has been signed out.
func (s *Authenticator) checkNotSignedOut(ctx context.Context, sess session) error {
	if s.config.RevokedSessions == nil {
		return nil
	}
	ended, err := s.config.RevokedSessions.IsRevoked(ctx, sess.Nonce)
	if err == nil && ended {
		err = ErrUnauthenticated
	}
	return err
}

// SessionCheck returns a function that checks whether the session that authenticates the request is
// still valid. The function returns ErrUnauthenticated if the session has been signed out, even if
// that happened after the call of SessionCheck. If the request is not authenticated by a session,
// SessionCheck returns nil.
func (s *Authenticator) SessionCheck(r *http.Request) func(context.Context) error {
	sess, valid := s.sessions.fromRequest(r)
	if r.Header.Get("Authorization") != "" || !valid {
		return nil
	}
	return func(ctx context.Context) error { return s.checkNotSignedOut(ctx, sess) }
}

// SessionExpiresAt returns the time at which the session that authenticates the request expires. It
// returns the zero time if the request is not authenticated by a session.
func (s *Authenticator) SessionExpiresAt(r *http.Request) time.Time {
	sess, valid := s.sessions.fromRequest(r)
	if r.Header.Get("Authorization") != "" || !valid {
		return time.Time{}
	}
	return time.Unix(sess.Ends, 0)
}

// RequireSameOrigin returns a handler that sends state-changing cross-origin requests to denied,
// and all other requests to next.
func (s *Authenticator) RequireSameOrigin(next, denied http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.crossOriginProtection.Check(r) != nil {
			denied.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// SignInByToken begins a session if token is the admin token or a key. It returns the same errors
// as APICaller, and delays the response to a wrong token.
func (s *Authenticator) SignInByToken(w http.ResponseWriter, r *http.Request, token string) error {
	caller, sess, err := s.callerOfToken(r.Context(), strings.TrimSpace(token))
	switch {
	case err == nil:
		s.beginSession(w, r, sess, caller)
	case errors.Is(err, ErrUnauthenticated):
		s.auditAndDelayFailure(r, FailedAtConsole)
	}
	return err
}

// callerOfToken authenticates the admin token or a key. It returns the caller, and the content of
// the session that this caller can begin.
func (s *Authenticator) callerOfToken(
	ctx context.Context, token string,
) (operate.Caller, session, error) {
	if s.isAdminToken(token) {
		return operate.AdminCaller(), session{Kind: operate.CallerKindAdminToken}, nil
	}
	if s.config.Keys == nil {
		return operate.Caller{}, session{}, ErrUnauthenticated
	}
	caller, known, err := s.config.Keys.CallerByKey(ctx, token)
	if err == nil && !known {
		err = ErrUnauthenticated
	}
	return caller, session{Kind: operate.CallerKindKey, KeyID: caller.ID}, err
}

// SignInByLink begins a session if nonce is the nonce of the one-time link, and reports whether it
// did. A HEAD request neither begins a session nor uses up the link. If no session begins, this
// counts as a failed sign-in, unless the request already has a session.
func (s *Authenticator) SignInByLink(w http.ResponseWriter, r *http.Request, nonce string) bool {
	if r.Method == http.MethodGet && s.linkNonce.consume(nonce) {
		s.beginSession(w, r, session{Kind: operate.CallerKindAdminToken}, operate.AdminCaller())
		return true
	}
	if _, valid := s.sessions.fromRequest(r); !valid {
		s.auditAndDelayFailure(r, FailedAtConsole)
	}
	return false
}

// beginSession sets the cookie of a new session, and records the sign-in unless the caller has
// signed in too often in this minute.
func (s *Authenticator) beginSession(
	w http.ResponseWriter, r *http.Request, sess session, caller operate.Caller,
) {
	lifetime := sessionLifetime
	if sess.Kind == operate.CallerKindUser {
		lifetime = min(s.config.OIDC.config.SessionLifetime, sessionLifetime)
	}
	s.sessions.setSessionCookie(w, r, sess, lifetime)
	if s.config.OnSignIn != nil && s.signInAuditLimiter.allow(caller) {
		s.config.OnSignIn(r.Context(), caller, false)
	}
}

// SignOut ends the session at every executor, for every copy of its cookie. If it returns an error,
// the session is still valid.
func (s *Authenticator) SignOut(w http.ResponseWriter, r *http.Request) error {
	if sess, valid := s.sessions.fromRequest(r); valid && s.config.RevokedSessions != nil {
		if err := s.config.RevokedSessions.Revoke(r.Context(), sess.Nonce,
			time.Unix(sess.Ends, 0)); err != nil {
			return err
		}
	}
	s.sessions.clearSessionCookie(w, r)
	return nil
}

// MatchesAdminToken reports whether text is the admin token, so that the caller can keep the token
// out of the log. Unlike isAdminToken, it does not run in constant time.
func (s *Authenticator) MatchesAdminToken(text string) bool {
	return text != "" && text == s.config.AdminToken
}

// isAdminToken reports whether token is the admin token. It compares hashes in constant time, so
// that its duration reveals nothing about the token or its length.
func (s *Authenticator) isAdminToken(token string) bool {
	given := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(given[:], s.tokenHash[:]) == 1 && s.config.AdminToken != ""
}

func (s *Authenticator) auditAndDelayFailure(r *http.Request, at string) {
	if at == FailedAtConsole && s.config.OnSignIn != nil && s.refusalAuditLimiter.Allow() {
		s.config.OnSignIn(r.Context(), operate.Caller{Kind: "unknown"}, true)
	}
	if s.config.FailureThrottle != nil {
		s.config.FailureThrottle.CountAndDelay(r.Context(), at, r.RemoteAddr)
	}
}
