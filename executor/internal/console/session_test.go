package console

import (
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestSessionsEndAndAreSigned(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(token string, now *time.Time) sessions {
		s := newSessions(token)
		s.now = func() time.Time { return *now }
		return s
	}
	here, there, stranger := at("token", &now), at("token", &now), at("another token", &now)
	session := here.issue()
	if !here.valid(session) || !there.valid(session) {
		t.Error("executors with one token do not accept each other's sessions")
	}
	if stranger.valid(session) {
		t.Error("a session of another token is accepted")
	}
	if here.issue() == session {
		t.Error("two sessions are the same")
	}
	text, err := base64.RawURLEncoding.DecodeString(session)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		changed := append([]byte{}, text...)
		changed[i] ^= 1
		if here.valid(base64.RawURLEncoding.EncodeToString(changed)) {
			t.Errorf("byte %d can be changed", i)
		}
	}
	for _, value := range []string{"", session[1:], session + "A", " " + session} {
		if here.valid(value) {
			t.Errorf("%q is accepted", value)
		}
	}
	now = now.Add(sessionLifetime - time.Second)
	if !there.valid(session) {
		t.Error("it ended early")
	}
	now = now.Add(time.Second)
	if there.valid(session) {
		t.Error("it did not end")
	}
}

func TestSessionCookieIsSecureOverTLS(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.TLS = nil
		if overTLS {
			r.TLS = &tls.ConnectionState{}
		}
		newSessions("token").start(w, r)
		if got := w.Result().Cookies()[0].Secure; got != overTLS {
			t.Errorf("over TLS %v: Secure is %v", overTLS, got)
		}
	}
}

func TestLocalPath(t *testing.T) {
	for target, want := range map[string]string{
		"/":                              "/",
		"/workflows/orders?node=a&x=%2F": "/workflows/orders?node=a&x=%2F",
		"/workflows#executions":          "/workflows#executions",
		"":                               "/",
		"workflows":                      "/",
		"//evil.example":                 "/",
		"///evil.example":                "/",
		"/\\evil.example":                "/",
		"/\t/evil.example":               "/",
		"/%0a/evil.example":              "/%0a/evil.example", // stays a path of this site
		"https://evil.example/":          "/",
		"https:evil.example":             "/",
		"javascript:alert(1)":            "/",
		"\\\\evil.example":               "/",
		"/%2f/evil.example":              "/", // decoded, it begins with //
		"/sign-in?next=/sign-in":         "/",
		"/sign-out":                      "/",
		" /workflows":                    "/",
		"/a\x00b":                        "/",
	} {
		if got := localPath(target); got != want {
			t.Errorf("localPath(%q) = %q, want %q", target, got, want)
		}
	}
}
