package signin

import (
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

func TestSessionsEndAndAreSigned(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(token string, now *time.Time) sessionSigner {
		s := newSessionSigner(token)
		s.now = func() time.Time { return *now }
		return s
	}
	here, there, stranger := at("token", &now), at("token", &now), at("another token", &now)
	issued := here.newCookieValue(session{Kind: operate.CallerKindAdminToken}, sessionLifetime)
	if !here.accepts(issued) || !there.accepts(issued) {
		t.Error("executors with one token do not accept each other's sessions")
	}
	if stranger.accepts(issued) {
		t.Error("a session of another token is accepted")
	}
	if here.newCookieValue(session{Kind: operate.CallerKindAdminToken}, sessionLifetime) == issued {
		t.Error("two sessions are the same")
	}
	text, err := base64.RawURLEncoding.DecodeString(issued)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		changed := append([]byte{}, text...)
		changed[i] ^= 1
		if here.accepts(base64.RawURLEncoding.EncodeToString(changed)) {
			t.Errorf("byte %d can be changed", i)
		}
	}
	for _, value := range []string{"", issued[1:], issued + "A", " " + issued} {
		if here.accepts(value) {
			t.Errorf("%q is accepted", value)
		}
	}
	now = now.Add(sessionLifetime - time.Second)
	if !there.accepts(issued) {
		t.Error("it ended early")
	}
	now = now.Add(time.Second)
	if there.accepts(issued) {
		t.Error("it did not end")
	}
}

func TestSessionCookieIsSecureOverTLS(t *testing.T) {
	t.Parallel()
	s := newSessionSigner("token")
	for _, c := range []struct {
		what      string
		tls       *tls.ConnectionState
		forwarded string
		secure    bool
	}{
		{"http", nil, "", false},
		{"https", &tls.ConnectionState{}, "", true},
		{"https at a proxy", nil, "https", true},
		{"https at the first of two proxies", nil, "HTTPS, http", true},
		{"http at a proxy", nil, "http", false},
		{"http at the first of two proxies", nil, "http, https", false},
	} {
		request := func(cookies ...*http.Cookie) *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.TLS = c.tls
			if c.forwarded != "" {
				r.Header.Set("X-Forwarded-Proto", c.forwarded)
			}
			for _, cookie := range cookies {
				r.AddCookie(cookie)
			}
			return r
		}
		w := httptest.NewRecorder()
		s.setSessionCookie(w, request(), session{Kind: operate.CallerKindAdminToken},
			sessionLifetime)
		cookie := w.Result().Cookies()[0]
		if cookie.Secure != c.secure || (cookie.Name == "__Host-hookstart_session") != c.secure ||
			cookie.Path != "/" || cookie.Domain != "" {
			t.Errorf("%s: %s", c.what, cookie)
		}
		if _, ok := s.fromRequest(request(cookie)); !ok {
			t.Errorf("%s: the session is not found again", c.what)
		}
		w = httptest.NewRecorder()
		s.clearSessionCookie(w, request(cookie))
		if ended := w.Result().Cookies()[0]; ended.Name != cookie.Name ||
			ended.Secure != c.secure || ended.MaxAge >= 0 {
			t.Errorf("%s: signing out sets %s", c.what, ended)
		}
		// A cookie without the prefix __Host- is not accepted over https, because another host of
		// the same site could set it.
		other := &http.Cookie{Name: sessionCookie, Value: cookie.Value}
		if _, ok := s.fromRequest(request(other)); ok && c.secure {
			t.Errorf("%s: a session of a name that others can set is accepted", c.what)
		}
	}
}

// The sign-in link that is printed at startup expires, so that a copy of it in a log is useless
// later.
func TestSignInOnceEnds(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]bool{
		signInLinkLifetime - time.Second: true,
		signInLinkLifetime + time.Second: false,
	} {
		o := newOneTimeNonce("nonce")
		o.now = func() time.Time { return time.Now().Add(after) }
		if got := o.consume("nonce"); got != want {
			t.Errorf("after %s it signs in: %v", after, got)
		}
	}
}

func (s sessionSigner) accepts(value string) bool {
	session, valid := s.parseCookieValue(value)
	return valid && session.Kind == operate.CallerKindAdminToken
}

// A notice is shown only once, only for a short time, and only in the session in which it was set.
func TestNotice(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := Authenticator{sessions: newSessionSigner("token")}
	s.sessions.now = func() time.Time { return now }
	request := func(cookies ...*http.Cookie) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		return r
	}
	session := func() *http.Cookie {
		return &http.Cookie{
			Name: sessionCookie,
			Value: s.sessions.newCookieValue(session{Kind: operate.CallerKindAdminToken},
				sessionLifetime),
		}
	}
	mine, another := session(), session()
	set := httptest.NewRecorder()
	s.SetNotice(set, request(mine), "It is done.")
	notice := set.Result().Cookies()[0]
	take := func(cookie *http.Cookie) string {
		taken := httptest.NewRecorder()
		text := s.TakeNotice(taken, request(cookie, notice))
		if cookies := taken.Result().Cookies(); len(cookies) != 1 || cookies[0].MaxAge >= 0 {
			t.Errorf("the notice is not removed: %v", cookies)
		}
		return text
	}
	if text := take(mine); text != "It is done." {
		t.Errorf("it says %q", text)
	}
	if text := take(another); text != "" {
		t.Errorf("in another session, it says %q", text)
	}
	now = now.Add(noticeLifetime)
	if text := take(mine); text != "" {
		t.Errorf("later, it says %q", text)
	}
}
