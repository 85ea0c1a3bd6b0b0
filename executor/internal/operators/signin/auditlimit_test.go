package signin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

// The owner of a key can sign in as often as they like. This neither fills the audit log nor keeps
// other people's sign-ins from being recorded.
func TestNotedSignInsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	noted := map[string]int{}
	s := New(Config{AdminToken: "an-admin-token", Keys: someKeys{}, OnSignIn: func(
		_ context.Context, caller operate.Caller, _ bool,
	) {
		noted[caller.ID]++
	}})
	s.signInAuditLimiter.now = func() time.Time { return now }
	enter := func(key string) {
		t.Helper()
		if err := s.SignInByToken(httptest.NewRecorder(),
			httptest.NewRequest(http.MethodPost, "/sign-in", nil), key); err != nil {
			t.Error(err)
		}
	}
	for range 3 * maxAuditedSignInsPerMinute {
		enter("one")
	}
	enter("other")
	enter("an-admin-token")
	if noted["one"] != maxAuditedSignInsPerMinute || noted["other"] != 1 || noted[""] != 1 {
		t.Errorf("noted %v", noted)
	}
	now = now.Add(time.Minute)
	enter("one")
	if noted["one"] != maxAuditedSignInsPerMinute+1 {
		t.Errorf("noted %v a minute later", noted)
	}
}

// someKeys accepts any text as a key whose ID is that text.
type someKeys struct{}

func (k someKeys) CallerByKey(ctx context.Context, text string) (operate.Caller, bool, error) {
	return k.CallerByKeyID(ctx, text)
}

func (someKeys) CallerByKeyID(_ context.Context, id string) (operate.Caller, bool, error) {
	return operate.Caller{Kind: operate.CallerKindKey, ID: id, Role: operate.RoleViewer}, true, nil
}

// The API accepts a session only in requests from the console's own pages. It rejects even a read
// from another site's page, because the response may contain a value that is shown only once, and
// which would be lost. A token is accepted from any page.
func TestSessionIsForOwnPages(t *testing.T) {
	t.Parallel()
	s := New(Config{AdminToken: "an-admin-token"})
	w := httptest.NewRecorder()
	if err := s.SignInByToken(w, httptest.NewRequest(http.MethodPost, "/sign-in", nil),
		"an-admin-token"); err != nil {
		t.Fatal(err)
	}
	for site, want := range map[string]bool{
		"":            true,
		"none":        true,
		"same-origin": true,
		"same-site":   false,
		"cross-site":  false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/whoami", nil)
		r.AddCookie(w.Result().Cookies()[0])
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		if _, err := s.APICaller(r); (err == nil) != want {
			t.Errorf("%q: %v", site, err)
		}
		r.Header.Set("Authorization", "Bearer an-admin-token")
		if _, err := s.APICaller(r); err != nil {
			t.Errorf("%q, with the token: %v", site, err)
		}
	}
}
