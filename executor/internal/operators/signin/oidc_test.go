package signin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

// provider is an identity provider whose responses a test can change.
type provider struct {
	t      *testing.T
	server *httptest.Server
	key    *ecdsa.PrivateKey
	// issue returns the ID token of the next response for the given claims, or "" for a response
	// without an ID token. If issue is nil, the token is valid and has these claims.
	issue func(claims map[string]any) string
	// asked holds the parameters of the last redirect to the provider.
	asked url.Values
	// exchanges is the number of codes that have been exchanged since the sign-in began. If it is
	// not 0, the provider refuses to exchange another code.
	exchanges int
	userInfo  map[string]any // the user info; nil makes the endpoint fail
}

func startProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, value any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value)
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(
		w http.ResponseWriter, _ *http.Request,
	) {
		answer(w, map[string]any{
			"issuer":                                p.server.URL,
			"authorization_endpoint":                p.server.URL + "/auth",
			"token_endpoint":                        p.server.URL + "/token",
			"jwks_uri":                              p.server.URL + "/keys",
			"userinfo_endpoint":                     p.server.URL + "/userinfo",
			"id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"},
			"scopes_supported":                      []string{"openid", "groups"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, jose.JSONWebKeySet{
			Keys: []jose.JSONWebKey{
				{Key: key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"},
			},
		})
	})
	mux.HandleFunc("GET /userinfo", func(w http.ResponseWriter, _ *http.Request) {
		if p.userInfo == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answer(w, p.userInfo)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("code") != "code" || r.PostFormValue("code_verifier") == "" ||
			p.exchanges > 0 {
			w.WriteHeader(http.StatusBadRequest)
			answer(w, map[string]string{"error": "invalid_grant"})
			return
		}
		p.exchanges++
		claims := map[string]any{
			"iss":    p.server.URL,
			"aud":    "console",
			"sub":    "u1",
			"name":   "Eve",
			"nonce":  p.asked.Get("nonce"),
			"groups": []string{"staff", "team-a"},
			"iat":    time.Now().Unix(),
			"exp":    time.Now().Add(time.Hour).Unix(),
		}
		issue := p.issue
		if issue == nil {
			issue = p.sign
		}
		token := map[string]any{"access_token": "a", "token_type": "Bearer"}
		if id := issue(claims); id != "" {
			token["id_token"] = id
		}
		answer(w, token)
	})
	p.server = httptest.NewServer(mux)
	t.Cleanup(p.server.Close)
	return p
}

// sign returns a valid ID token with the given claims.
func (p *provider) sign(claims map[string]any) string {
	return p.signWith(jose.ES256, p.key, claims)
}

func (p *provider) signWith(
	algorithm jose.SignatureAlgorithm, key any, claims map[string]any,
) string {
	p.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: algorithm,
		Key:       jose.JSONWebKey{Key: key, KeyID: "1"},
	}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		p.t.Fatal(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		p.t.Fatal(err)
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return compact
}

// signIn returns an Authenticator that uses the provider p and the given role rules.
func (p *provider) signIn(rules ...string) *Authenticator {
	p.t.Helper()
	c := OIDCConfig{Issuer: p.server.URL, ClientID: "console", ClientSecret: "secret"}
	for _, text := range rules {
		rule, err := ParseRoleRule(text)
		if err != nil {
			p.t.Fatal(err)
		}
		c.RoleRules = append(c.RoleRules, rule)
	}
	return New(Config{AdminToken: "admin-token", OIDC: NewOIDC(c)})
}

// begin begins a sign-in. It returns the cookie that the browser stores, and the state parameter.
func (p *provider) begin(s *Authenticator) (cookie *http.Cookie, state string) {
	p.t.Helper()
	w := httptest.NewRecorder()
	to, err := s.BeginOIDC(w,
		httptest.NewRequest(http.MethodGet, "http://console.example/sign-in/provider", nil),
		"/workflows")
	if err != nil {
		p.t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil {
		p.t.Fatal(err)
	}
	p.asked, p.exchanges = u.Query(), 0
	return w.Result().Cookies()[0], p.asked.Get("state")
}

// answered calls the callback with the provider's response in query. It returns the caller who is
// then signed in, the cookies that were set, and the error.
func answered(
	s *Authenticator, query string, cookies ...*http.Cookie,
) (caller operate.Caller, set []*http.Cookie, err error) {
	r := httptest.NewRequest(http.MethodGet, "http://console.example"+CallbackPath+"?"+query, nil)
	for _, cookie := range cookies {
		r.AddCookie(cookie)
	}
	w := httptest.NewRecorder()
	if _, err = s.FinishOIDC(w, r); err != nil {
		return caller, w.Result().Cookies(), err
	}
	visit := httptest.NewRequest(http.MethodGet, "http://console.example/", nil)
	for _, cookie := range w.Result().Cookies() {
		visit.AddCookie(cookie)
	}
	caller, err = s.SessionCaller(visit)
	return caller, w.Result().Cookies(), err
}

func TestSignInThroughOIDC(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	s := p.signIn("groups=team-b:admin", "groups=team-a:editor@acme", "groups=staff:viewer")
	var noted []string
	s.config.OnSignIn = func(_ context.Context, caller operate.Caller, refused bool) {
		noted = append(noted, fmt.Sprint(caller.ID, refused))
	}
	cookie, state := p.begin(s)
	if cookie.SameSite != http.SameSiteLaxMode || !cookie.HttpOnly {
		t.Errorf("cookie %s", cookie)
	}
	for name, want := range map[string]string{
		"client_id":             "console",
		"response_type":         "code",
		"code_challenge_method": "S256",
		"redirect_uri":          "http://console.example/sign-in/callback",
		"scope":                 "openid profile email groups",
	} {
		if got := p.asked.Get(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	caller, set, err := answered(s, "code=code&state="+state, cookie)
	if want := (operate.Caller{
		Kind:      operate.CallerKindUser,
		ID:        "u1",
		Name:      "Eve",
		Role:      operate.RoleEditor,
		AccountID: "acme",
	}); err != nil || caller != want {
		t.Errorf("%+v, %v", caller, err)
	}
	// A replayed callback fails. The browser no longer has the cookie, because the first callback
	// has deleted it. A request with a copy of the cookie fails as well, because the code has been
	// used.
	for _, cookies := range [][]*http.Cookie{set, {cookie}} {
		if caller, _, err := answered(s, "code=code&state="+state, cookies...); err == nil {
			t.Errorf("a replayed answer signs %+v in", caller)
		}
	}
	if want := []string{"u1false", "true", "true"}; !slices.Equal(noted, want) {
		t.Errorf("noted %q, want %q", noted, want)
	}
	for range 2 * maxAuditedRefusalsPerMinute {
		_, _, _ = answered(s, "state=none")
	}
	if len(noted) > 3+maxAuditedRefusalsPerMinute {
		t.Errorf("%d sign-ins are noted", len(noted))
	}
	// A session ends when the rule that admitted the user, or the provider, is no longer
	// configured.
	session := set[len(set)-1]
	visit := httptest.NewRequest(http.MethodGet, "/", nil)
	visit.AddCookie(session)
	for what, other := range map[string]*Authenticator{
		"other rules": p.signIn("groups=staff:viewer"),
		"no provider": New(Config{AdminToken: "admin-token"}),
	} {
		if caller, err := other.SessionCaller(visit); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %+v, %v", what, caller, err)
		}
	}
	if caller, err := s.SessionCaller(visit); err != nil || caller.Role != operate.RoleEditor {
		t.Errorf("%+v, %v", caller, err)
	}
}

// A session from an identity provider lasts an hour. After that, the browser is redirected to the
// provider again, and the groups that the user has then determine the role.
func TestWhoLeavesAGroup(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	s := p.signIn("groups=team-a:editor@acme", "groups=staff:viewer")
	signedIn := time.Now()
	now := signedIn
	s.sessions.now = func() time.Time { return now }
	with := func(cookies ...*http.Cookie) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "http://console.example/", nil)
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		return r
	}
	cookie, state := p.begin(s)
	caller, set, err := answered(s, "code=code&state="+state, cookie)
	if err != nil || caller.Role != operate.RoleEditor {
		t.Fatalf("%+v, %v", caller, err)
	}
	session := set[len(set)-1]
	if ends := s.SessionExpiresAt(with(session)); ends.Sub(now) > DefaultSessionLifetime ||
		now.Add(DefaultSessionLifetime).Sub(ends) > time.Second {
		t.Errorf("it ends at %s, and it is %s", ends, now)
	}
	if s.OIDCSessionExpired(with(session)) || !s.SessionExpiresAt(with()).IsZero() {
		t.Error("a session that goes on is asked for again")
	}
	adminToken := &http.Cookie{
		Name:  sessionCookie,
		Value: s.sessions.newCookieValue(adminSession, time.Minute),
	}
	for after, want := range map[time.Duration]bool{
		DefaultSessionLifetime - time.Second:                     false,
		DefaultSessionLifetime + time.Second:                     true,
		DefaultSessionLifetime + sessionLifetime - 2*time.Second: true,
		DefaultSessionLifetime + sessionLifetime + time.Second:   false,
	} {
		now = signedIn.Add(after)
		_, err := s.SessionCaller(with(session))
		if returns := s.OIDCSessionExpired(with(session)); returns != want ||
			(err == nil) != (after < DefaultSessionLifetime) {
			t.Errorf("after %s: returns %v, %v", after, returns, err)
		}
		if s.OIDCSessionExpired(with(adminToken)) ||
			s.OIDCSessionExpired(with(&http.Cookie{
				Name: sessionCookie, Value: session.Value[1:],
			})) ||
			s.OIDCSessionExpired(with(cookie)) {
			t.Errorf("after %s, what is no session through the provider is sent there", after)
		}
	}
	now = signedIn.Add(DefaultSessionLifetime + time.Minute)
	for groups, want := range map[string]operate.Role{
		"staff":  operate.RoleViewer,
		"team-a": operate.RoleEditor,
		"guests": "",
	} {
		p.issue = func(claims map[string]any) string {
			claims["groups"] = []string{groups}
			return p.sign(claims)
		}
		cookie, state := p.begin(s)
		caller, _, err := answered(s, "code=code&state="+state, cookie, session)
		if caller.Role != want || (err == nil) != (want != "") {
			t.Errorf("in the group %s: %+v, %v", groups, caller, err)
		}
	}
}

var adminSession = session{Kind: operate.CallerKindAdminToken}

// A malicious provider, or an attacker between the executor and the provider, sends invalid
// responses. None of them signs a user in.
func TestHostileProvider(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	p.userInfo = map[string]any{"sub": "u1"}
	s := p.signIn("groups=team-a:editor@acme", "email=eve@example.com:admin")
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	with := func(changes map[string]any) func(map[string]any) string {
		return func(claims map[string]any) string {
			maps.Copy(claims, changes)
			for name, value := range changes {
				if value == nil {
					delete(claims, name)
				}
			}
			return p.sign(claims)
		}
	}
	now := time.Now()
	for what, issue := range map[string]func(map[string]any) string{
		"another nonce":         with(map[string]any{"nonce": "other"}),
		"no nonce":              with(map[string]any{"nonce": nil}),
		"another issuer":        with(map[string]any{"iss": "https://evil.example"}),
		"another audience":      with(map[string]any{"aud": "other"}),
		"audiences without azp": with(map[string]any{"aud": []string{"console", "other"}}),
		"another azp":           with(map[string]any{"azp": "other"}),
		"expired":               with(map[string]any{"exp": now.Add(-time.Minute).Unix()}),
		"no expiry":             with(map[string]any{"exp": nil}),
		"not yet":               with(map[string]any{"nbf": now.Add(time.Hour).Unix()}),
		"no subject":            with(map[string]any{"sub": nil}),
		"no group":              with(map[string]any{"groups": []string{"staff"}}),
		"groups as one text":    with(map[string]any{"groups": "team-a,staff"}),
		"an unverified address": with(map[string]any{"groups": nil, "email": "eve@example.com"}),
		"a false address": with(map[string]any{
			"groups":         nil,
			"email":          "eve@example.com",
			"email_verified": "true",
		}),
		"no ID token": func(map[string]any) string { return "" },
		"garbage":     func(map[string]any) string { return "a.b.c" },
		"another key": func(claims map[string]any) string {
			return p.signWith(jose.ES256, stranger, claims)
		},
		"the client's secret as key": func(claims map[string]any) string {
			return p.signWith(jose.HS256, []byte("secret-secret-secret-secret-secret"), claims)
		},
		"no signature": func(claims map[string]any) string {
			text, _ := json.Marshal(claims)
			encode := base64.RawURLEncoding.EncodeToString
			return encode([]byte(`{"alg":"none"}`)) + "." + encode(text) + "."
		},
		"a changed claim": func(claims map[string]any) string {
			parts := strings.Split(p.sign(claims), ".")
			claims["groups"] = []string{"team-a", "platform"}
			text, _ := json.Marshal(claims)
			return parts[0] + "." + base64.RawURLEncoding.EncodeToString(text) + "." + parts[2]
		},
	} {
		p.issue = issue
		cookie, state := p.begin(s)
		caller, set, err := answered(s, "code=code&state="+state, cookie)
		if _, refused := errors.AsType[*RefusedError](err); !refused {
			t.Errorf("%s: %+v, %v", what, caller, err)
		}
		for _, c := range set {
			if c.Value != "" {
				t.Errorf("%s: sets %s", what, c)
			}
		}
	}
	p.issue = nil
	if caller, _, err := func() (operate.Caller, []*http.Cookie, error) {
		cookie, state := p.begin(s)
		return answered(s, "code=code&state="+state, cookie)
	}(); err != nil {
		t.Errorf("a good answer after them: %+v, %v", caller, err)
	}
}

// A callback is accepted only from the browser that began the sign-in, and only for that sign-in.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	s := p.signIn("groups=team-a:editor@acme")
	other, otherState := p.begin(s)
	cookie, state := p.begin(s)
	session := &http.Cookie{
		Name:  cookie.Name,
		Value: s.sessions.newCookieValue(adminSession, sessionLifetime),
	}
	for what, c := range map[string]struct {
		query   string
		cookies []*http.Cookie
	}{
		"no cookie":              {"code=code&state=" + state, nil},
		"no state":               {"code=code", []*http.Cookie{cookie}},
		"an empty state":         {"code=code&state=", []*http.Cookie{cookie}},
		"another's state":        {"code=code&state=" + otherState, []*http.Cookie{cookie}},
		"another's cookie":       {"code=code&state=" + state, []*http.Cookie{other}},
		"a session in its place": {"code=code&state=" + state, []*http.Cookie{session}},
		"a forged cookie": {
			"code=code&state=x", []*http.Cookie{
				{
					Name: cookie.Name,
					Value: base64.RawURLEncoding.EncodeToString(append(make([]byte, 32),
						`{"state":"x","ends":99999999999}`...)),
				},
			},
		},
		"no code":                   {"state=" + state, []*http.Cookie{cookie}},
		"another code":              {"code=other&state=" + state, []*http.Cookie{cookie}},
		"what the provider refused": {"error=access_denied&state=" + state, []*http.Cookie{cookie}},
	} {
		p.exchanges = 0
		if caller, _, err := answered(s, c.query, c.cookies...); err == nil {
			t.Errorf("%s: signs %+v in", what, caller)
		} else if _, refused := errors.AsType[*RefusedError](err); !refused {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The signed cookie of a pending sign-in is not accepted as a session.
	visit := httptest.NewRequest(http.MethodGet, "/", nil)
	visit.AddCookie(&http.Cookie{Name: sessionCookie, Value: cookie.Value})
	if caller, err := s.SessionCaller(visit); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("%+v, %v", caller, err)
	}
	later := time.Now().Add(oidcSignInTimeout)
	s.sessions.now = func() time.Time { return later }
	p.exchanges = 0
	if caller, _, err := answered(s, "code=code&state="+state, cookie); err == nil {
		t.Errorf("too late: signs %+v in", caller)
	}
}

// Some providers return groups only in the user info. If the user info is about another user, it is
// not used.
func TestGroupsOfUserInfo(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	s := p.signIn("groups=team-a:viewer")
	p.issue = func(claims map[string]any) string {
		delete(claims, "groups")
		return p.sign(claims)
	}
	for subject, want := range map[string]bool{"u1": true, "u2": false} {
		p.userInfo = map[string]any{"sub": subject, "groups": []string{"team-a"}}
		cookie, state := p.begin(s)
		if caller, _, err := answered(s, "code=code&state="+state, cookie); (err == nil) != want {
			t.Errorf("%s: %+v, %v", subject, caller, err)
		}
	}
}

// The first matching rule decides, even if its claim is only in the user info. If the user info
// cannot be read, it is unknown whether an earlier rule matches. The sign-in then fails, even if a
// later rule matches.
func TestFirstRuleOfUserInfo(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	contractor := map[string]any{"sub": "u1", "groups": []string{"contractors"}}
	other := map[string]any{"sub": "u1", "groups": []string{"staff"}}
	stranger := map[string]any{"sub": "u2"}
	const narrow, wide = "groups=contractors:viewer@acme", "email_verified=true:editor"
	narrowFirst, wideFirst := []string{narrow, wide}, []string{wide, narrow}
	for name, test := range map[string]struct {
		rules     []string
		info      map[string]any
		role      operate.Role // "": the sign-in fails
		accountID string
	}{
		"an earlier rule matches":      {narrowFirst, contractor, operate.RoleViewer, "acme"},
		"an earlier rule differs":      {narrowFirst, other, operate.RoleEditor, ""},
		"an earlier rule is undecided": {narrowFirst, nil, "", ""},
		"a later rule is undecided":    {wideFirst, nil, operate.RoleEditor, ""},
		"another user's groups":        {narrowFirst, stranger, "", ""},
	} {
		s := p.signIn(test.rules...)
		p.issue = func(claims map[string]any) string {
			delete(claims, "groups")
			claims["email"], claims["email_verified"] = "eve@example.com", true
			return p.sign(claims)
		}
		p.userInfo = test.info
		cookie, state := p.begin(s)
		caller, _, err := answered(s, "code=code&state="+state, cookie)
		if caller.Role != test.role || caller.AccountID != test.accountID ||
			(err == nil) != (test.role != "") {
			t.Errorf("%s: %+v, %v", name, caller, err)
		}
	}
}

// An email address counts as verified only if the address and the email_verified claim come from
// the same source, that is, the ID token or the user info, or if both sources have the same
// address.
func TestAddressAndItsVerificationBelongTogether(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	s := p.signIn("email=boss@example.com:admin")
	for name, test := range map[string]struct {
		token, info map[string]any
		admin       bool
	}{
		"both in the token": {
			map[string]any{"email": "boss@example.com", "email_verified": true}, nil, true,
		},
		"both elsewhere": {
			nil, map[string]any{"email": "boss@example.com", "email_verified": true}, true,
		},
		"the same address": {
			map[string]any{"email": "boss@example.com"}, map[string]any{
				"email":          "boss@example.com",
				"email_verified": true,
			}, true,
		},
		"another one is verified": {
			map[string]any{"email": "boss@example.com"}, map[string]any{
				"email":          "eve@example.com",
				"email_verified": true,
			}, false,
		},
		"no address is verified": {
			map[string]any{"email": "boss@example.com"},
			map[string]any{"email_verified": true},
			false,
		},
		"another one was verified before": {
			map[string]any{"email_verified": true},
			map[string]any{"email": "boss@example.com"},
			false,
		},
	} {
		p.issue = func(claims map[string]any) string {
			maps.Copy(claims, test.token)
			return p.sign(claims)
		}
		p.userInfo = map[string]any{"sub": "u1"}
		maps.Copy(p.userInfo, test.info)
		cookie, state := p.begin(s)
		caller, _, err := answered(s, "code=code&state="+state, cookie)
		if (err == nil) != test.admin {
			t.Errorf("%s: %+v, %v", name, caller, err)
		}
	}
}

// A user's name is shown next to other text, so it must not contain characters that change how that
// text is displayed.
func TestNamesAreVisible(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Eve Ürümqi":          "Eve Ürümqi",
		"می\u200cخواهم":       "می\u200cخواهم",
		"a\x00b\r\nc\x1b[31m": "a\uFFFDb\uFFFD\uFFFDc\uFFFD[31m",
		"\u202eEvE":           "\uFFFDEvE",
		"a\u2066b":            "a\uFFFDb",
	} {
		if got := userNameFromClaims(map[string]any{"name": name}); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

// A sign-in cannot begin if the provider does not respond, or if the server that responds is not
// the configured issuer.
func TestProviderIsAway(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	rule, err := ParseRoleRule("groups=team-a:viewer")
	if err != nil {
		t.Fatal(err)
	}
	for _, issuer := range []string{
		p.server.URL + "/nothing", "http://127.0.0.1:1",
		strings.Replace(p.server.URL, "127.0.0.1", "localhost", 1),
	} {
		s := New(Config{
			AdminToken: "admin-token",
			OIDC: NewOIDC(OIDCConfig{
				Issuer:    issuer,
				ClientID:  "console",
				RoleRules: []RoleRule{rule},
			}),
		})
		if _, err := s.BeginOIDC(httptest.NewRecorder(),
			httptest.NewRequest(http.MethodGet, "/sign-in/provider", nil), "/"); err == nil {
			t.Errorf("%s is taken for a provider", issuer)
		}
	}
}

func TestRoleRules(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]RoleRule{
		"groups=team-a:editor@acme":   {"groups", "team-a", operate.RoleEditor, "acme"},
		"email=eve@example.com:admin": {"email", "eve@example.com", operate.RoleAdmin, ""},
		"groups=cn=ops,dc=x:y:viewer": {"groups", "cn=ops,dc=x:y", operate.RoleViewer, ""},
		"realm_access.roles=a b:viewer@a_1": {
			"realm_access.roles", "a b", operate.RoleViewer,
			"a_1",
		},
	} {
		got, err := ParseRoleRule(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "groups", "groups=team-a", "groups=:viewer", "=a:viewer", "groups=a:", "groups=a:owner",
		"groups=a:admin@acme", "groups=a:viewer@", "groups=a:viewer@a/b",
	} {
		if got, err := ParseRoleRule(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	claims := map[string]any{
		"realm_access": map[string]any{"roles": []any{"a"}},
		"a.b":          "c",
		"ok":           true,
	}
	for text, want := range map[string]bool{
		"realm_access.roles=a:viewer": true,
		"realm_access.roles=b:viewer": false,
		"a.b=c:viewer":                true,
		"ok=true:viewer":              true,
		"none.x=a:viewer":             false,
		"realm_access=a:viewer":       false,
	} {
		rule, err := ParseRoleRule(text)
		if _, matches := firstMatchingRule([]RoleRule{rule}, claims); err != nil ||
			matches != want {
			t.Errorf("%s: %v, %v", text, matches, err)
		}
	}
}
