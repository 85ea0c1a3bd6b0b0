package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

const (
	// CallbackPath is the path to which the provider redirects the browser.
	CallbackPath = "/sign-in/callback"

	oidcCookie = "hookstart_oidc"
	// oidcSignInTimeout is how long a person may take to sign in at the provider.
	oidcSignInTimeout  = 10 * time.Minute
	oidcSigningPurpose = "oidc"

	providerTimeout = 10 * time.Second
)

// OIDCConfig describes an identity provider that supports OpenID Connect.
type OIDCConfig struct {
	// Issuer is the URL of the provider.
	Issuer string
	// ClientID is the console's client ID at the provider.
	ClientID     string
	ClientSecret string // "" for a public client
	// RoleRules assigns roles to users: the first rule that matches a user applies. A user without
	// a matching rule cannot sign in.
	RoleRules []RoleRule
	// SessionLifetime is how long a sign-in lasts. After that, the provider must confirm the user's
	// groups again. Zero means DefaultSessionLifetime. The maximum is 12 hours.
	SessionLifetime time.Duration
}

// DefaultSessionLifetime is how long a sign-in at a provider lasts by default.
const DefaultSessionLifetime = time.Hour

// OIDC lets people sign in at an identity provider, using the authorization code flow with PKCE. It
// fetches the provider's configuration at the first sign-in. It is safe for concurrent use.
type OIDC struct {
	config OIDCConfig
	client *http.Client

	mu            sync.Mutex
	provider      *oidc.Provider
	lastErr       error     // error of the last attempt to fetch the configuration
	nextAttemptAt time.Time // the earliest time of the next attempt
}

// providerRetryInterval is the minimum interval between attempts to fetch the provider's
// configuration. Anyone can trigger an attempt, so without a minimum, attempts would accumulate
// while the provider does not respond.
const providerRetryInterval = 5 * time.Second

// NewOIDC returns an OIDC for the given provider, which it does not contact yet.
func NewOIDC(c OIDCConfig) *OIDC {
	if c.SessionLifetime == 0 {
		c.SessionLifetime = DefaultSessionLifetime
	}
	return &OIDC{config: c, client: &http.Client{Timeout: providerTimeout}}
}

// pendingSignIn is the content of the cookie that the browser keeps while the user is at the
// provider. A callback without this cookie is rejected, because it comes from another browser.
type pendingSignIn struct {
	Ends     int64  `json:"ends"` // Unix seconds
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	Next     string `json:"next"`
}

// HasOIDC reports whether people can sign in through an identity provider.
func (s *Authenticator) HasOIDC() bool { return s.config.OIDC != nil }

// OIDCSessionExpired reports whether the request's session began at the provider and has expired.
// The caller can then redirect the browser to the provider, which usually sends it back with the
// user's current claims without asking for a password.
func (s *Authenticator) OIDCSessionExpired(r *http.Request) bool {
	sess, ok := s.sessions.expiredFromRequest(r)
	return ok && sess.Kind == operate.CallerKindUser && s.HasOIDC()
}

// BeginOIDC begins a sign-in at the provider, and returns the URL to which the browser must be
// redirected. next is the page to show afterwards.
func (s *Authenticator) BeginOIDC(
	w http.ResponseWriter, r *http.Request, next string,
) (url string, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), providerTimeout)
	defer cancel()
	client, _, err := s.config.OIDC.clientAndProvider(ctx, r)
	if err != nil {
		return "", err
	}
	a := pendingSignIn{
		Ends: s.sessions.now().
			Add(oidcSignInTimeout).
			Unix(),
		State: rand.Text(), Nonce: rand.Text(),
		Verifier: oauth2.GenerateVerifier(), Next: next,
	}
	setOIDCCookie(w, r, s.sessions.signValue(oidcSigningPurpose, a),
		int(oidcSignInTimeout/time.Second))
	return client.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)),
		nil
}

// RefusedError describes why a sign-in at the provider failed. Its Detail is for the person who
// tried to sign in, and its cause is for the log.
type RefusedError struct {
	// Detail describes the problem and what to do about it.
	Detail string
	cause  error
}

// Error implements error. The text is for the log: it consists of the detail and the cause.
func (e *RefusedError) Error() string { return e.Detail + " " + fmt.Sprint(e.cause) }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.cause }

// FinishOIDC handles the redirect back from the provider and begins a session. next is the page
// that was passed to BeginOIDC. A *RefusedError means that the sign-in was refused; FinishOIDC then
// delays the response, as after a wrong token.
func (s *Authenticator) FinishOIDC(
	w http.ResponseWriter, r *http.Request,
) (next string, err error) {
	var pending pendingSignIn
	cookie, err := r.Cookie(cookieName(r, oidcCookie))
	known := err == nil && s.sessions.verifyValue(oidcSigningPurpose, cookie.Value, &pending) &&
		s.sessions.now().Unix() < pending.Ends &&
		subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("state")), []byte(pending.State)) == 1
	setOIDCCookie(w, r, "", -1) // a callback is valid only once
	if !known {
		s.auditAndDelayFailure(r, FailedAtConsole)
		return "/", &RefusedError{
			"This answer belongs to no sign-in that was begun in this browser within the last " +
				"ten minutes. Begin again.", errors.New("unknown state"),
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), providerTimeout)
	defer cancel()
	u, err := s.config.OIDC.exchangeCode(ctx, r, pending)
	if err != nil {
		if _, refused := errors.AsType[*RefusedError](err); refused {
			s.auditAndDelayFailure(r, FailedAtConsole)
		}
		return pending.Next, err
	}
	caller, err := s.config.OIDC.callerOfUser(u)
	if err != nil {
		return pending.Next, err
	}
	s.beginSession(w, r, session{Kind: operate.CallerKindUser, User: &u}, caller)
	return pending.Next, nil
}

// clientAndProvider returns the OAuth client for a request, and the provider. The client's redirect
// URL has the host that the browser used. The provider rejects a redirect URL that is not
// registered there, so the host need not be checked.
func (o *OIDC) clientAndProvider(
	ctx context.Context, r *http.Request,
) (client oauth2.Config, provider *oidc.Provider, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.provider == nil && time.Now().After(o.nextAttemptAt) {
		o.provider, o.lastErr = oidc.NewProvider(oidc.ClientContext(ctx, o.client), o.config.Issuer)
		o.nextAttemptAt = time.Now().Add(providerRetryInterval)
	}
	if o.provider == nil {
		return client, nil,
			fmt.Errorf("the identity provider does not answer as one does: %w", o.lastErr)
	}
	scheme := "http"
	if usesHTTPS(r) {
		scheme = "https"
	}
	client = oauth2.Config{
		ClientID:     o.config.ClientID,
		ClientSecret: o.config.ClientSecret,
		Endpoint:     o.provider.Endpoint(),
		RedirectURL:  scheme + "://" + r.Host + CallbackPath,
		Scopes:       scopes(o.provider),
	}
	return client, o.provider, nil
}

// scopes returns the scopes to request. It includes groups only if the provider supports that
// scope, because some providers reject unknown ones.
func scopes(provider *oidc.Provider) []string {
	var known struct {
		Scopes []string `json:"scopes_supported"`
	}
	wanted := []string{oidc.ScopeOpenID, "profile", "email"}
	if provider.Claims(&known) == nil && slices.Contains(known.Scopes, "groups") {
		wanted = append(wanted, "groups")
	}
	return wanted
}

// exchangeCode exchanges the code in the callback for the user who has signed in. It returns a
// *RefusedError if the provider did not sign the user in, if the provider's answer is invalid, or
// if no role rule matches the user.
func (o *OIDC) exchangeCode(
	ctx context.Context,
	r *http.Request,
	a pendingSignIn,
) (u user, err error) {
	query := r.URL.Query()
	if code := query.Get("error"); code != "" {
		return u, &RefusedError{
			"The identity provider did not sign you in.",
			fmt.Errorf("it answered %.100q: %.200q", code, query.Get("error_description")),
		}
	}
	client, provider, err := o.clientAndProvider(ctx, r)
	if err != nil {
		return u, err
	}
	ctx = oidc.ClientContext(ctx, o.client)
	token, err := client.Exchange(ctx, query.Get("code"), oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return u, exchangeError(err)
	}
	claims, err := o.verifiedClaims(ctx, provider, token, a.Nonce)
	if err != nil {
		return u, &RefusedError{"The identity provider's answer is not valid.", err}
	}
	if needsUserInfo(o.config.RoleRules, claims) && provider.UserInfoEndpoint() != "" {
		if err := addUserInfo(ctx, provider, token, claims); err != nil {
			return u, err
		}
	}
	rule, matches := firstMatchingRule(o.config.RoleRules, claims)
	if !matches {
		return u, &RefusedError{
			"You are signed in at the identity provider, but have no access here. Ask an admin.",
			errors.New("no --oidc-role matches"),
		}
	}
	return user{
		ID: claimText(claims["sub"]), Name: userNameFromClaims(claims),
		Rule: rule.String(),
	}, nil
}

// exchangeError returns the error for a code that could not be exchanged: a *RefusedError if the
// provider rejected the code, or another error if the provider did not respond. The error never
// contains the code.
func exchangeError(err error) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return &RefusedError{
			"The identity provider did not accept its own answer. It may have been used before: " +
				"begin again.", fmt.Errorf("%s %.100q", refused.Response.Status, refused.ErrorCode),
		}
	}
	return fmt.Errorf("ask the identity provider: %w", err)
}

// verifiedClaims verifies the ID token and returns its claims. The token must be issued and signed
// by the provider for this client and this sign-in, and must not have expired.
func (o *OIDC) verifiedClaims(
	ctx context.Context, provider *oidc.Provider, token *oauth2.Token, nonce string,
) (map[string]any, error) {
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return nil, errors.New("there is no ID token in it")
	}
	verified, err := provider.VerifierContext(ctx,
		&oidc.Config{ClientID: o.config.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, err
	}
	if verified.Subject == "" {
		return nil, errors.New("it names no user")
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(nonce)) != 1 {
		return nil, errors.New("the nonce is another one's")
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return nil, err
	}
	if azp, ok := claims["azp"]; (ok || len(verified.Audience) > 1) &&
		claimText(azp) != o.config.ClientID {
		return nil, errors.New("it was issued to another client")
	}
	return claims, nil
}

// addUserInfo adds the claims in the provider's user info that the ID token lacks. It is needed
// because some providers omit groups from the ID token.
func addUserInfo(
	ctx context.Context, provider *oidc.Provider, token *oauth2.Token, claims map[string]any,
) error {
	info, err := provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return fmt.Errorf("ask the identity provider for the user's claims: %w", err)
	}
	if info.Subject != claimText(claims["sub"]) {
		return &RefusedError{
			"The identity provider's answer is not valid.",
			errors.New("its user info is another user's"),
		}
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return fmt.Errorf("read the user's claims: %w", err)
	}
	addMissingClaims(claims, more)
	return nil
}

// addMissingClaims copies to claims each claim in more that claims does not have yet. There is one
// exception: it combines an email address from one map with an email_verified from the other only
// if both maps have the same address.
func addMissingClaims(claims, more map[string]any) {
	_, hasAddress := claims["email"]
	_, hasVerified := claims["email_verified"]
	otherAddress := (hasAddress || hasVerified) &&
		(claimText(claims["email"]) == "" || claims["email"] != more["email"])
	for name, value := range more {
		_, ok := claims[name]
		if ok || (otherAddress && (name == "email" || name == "email_verified")) {
			continue
		}
		claims[name] = value
	}
}

// callerOfUser returns the caller for a user who has signed in at the identity provider. The
// caller's role is that of the rule that matched at the sign-in. If this rule is no longer
// configured, callerOfUser returns ErrUnauthenticated.
func (o *OIDC) callerOfUser(u user) (operate.Caller, error) {
	for _, rule := range o.config.RoleRules {
		if rule.String() == u.Rule {
			return operate.Caller{
				Kind:      operate.CallerKindUser,
				ID:        u.ID,
				Name:      u.Name,
				Role:      rule.Role,
				AccountID: rule.AccountID,
			}, nil
		}
	}
	return operate.Caller{}, ErrUnauthenticated
}

// setOIDCCookie sets the cookie of a pending sign-in. The cookie has SameSite=Lax, because the
// browser must send it when it returns from the provider's site.
func setOIDCCookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	setCookie(w, r, oidcCookie, value, maxAge, http.SameSiteLaxMode)
}
