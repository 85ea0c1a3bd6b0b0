package console_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/operators/apiserver"
	"github.com/hookstart/hookstart/executor/internal/operators/console"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/operators/queuestreams"
	"github.com/hookstart/hookstart/executor/internal/operators/reachability"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/executor/internal/operators/testsend"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

const (
	adminToken = "an-admin-token-for-tests"
	nonce      = "a-nonce-for-tests"
)

// rig is a console and the operators' API, which share one server as they do in an executor.
type rig struct {
	*registrytest.Registry
	t      *testing.T
	calls  *operate.Service
	store  store.Store
	uses   *keyUses
	server *httptest.Server
	log    *logtest.Buffer
}

func start(t *testing.T, change ...func(*operate.Config)) *rig {
	t.Helper()
	return startAt(t, "https://hooks.example.com", change...)
}

// startAt starts a rig whose webhook endpoint has the given public URL. The functions in change can
// modify the configuration first.
func startAt(t *testing.T, publicURL string, change ...func(*operate.Config)) *rig {
	t.Helper()
	nc := natstest.Start(t).Connect(t)
	r := &rig{
		t:        t,
		Registry: registrytest.StartWithKeys(t, nc, registrytest.NewKeys(t)),
		log:      &logtest.Buffer{},
	}
	records, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
	r.check(err)
	t.Cleanup(func() { _ = records.Close() })
	r.store = records
	changed, err := changes.New(nc)
	r.check(err)
	t.Cleanup(changed.Stop)
	log := logrus.New()
	log.SetOutput(r.log)
	log.SetLevel(logrus.TraceLevel)

	checker := reachability.New(publicURL, r.Membership)
	r.uses = &keyUses{Store: records}
	keyring := operate.NewKeyring(r.Editor, r.RegistryIndex, r.uses, log)
	waits, err := queues.New(queues.Config{
		Conn:             nc,
		JetStream:        r.JetStream,
		QueueNames:       r.RegistryIndex.QueueNames,
		Settings:         r.RegistryIndex.QueueSettings,
		RecorderConsumer: "executor",
	})
	r.check(err)
	t.Cleanup(waits.Stop)
	config := operate.Config{
		Editor:        r.Editor,
		RegistryIndex: r.RegistryIndex,
		Membership:    r.Membership,
		Store:         records,
		JetStream:     r.JetStream,
		Queues:        waits,
		StreamMover: queuestreams.New(queuestreams.Config{
			JetStream: r.JetStream, Editor: r.Editor, RegistryIndex: r.RegistryIndex,
			Settings: stream.DefaultSettings, Log: log,
		}),
		Changes:          changed,
		PublicURL:        publicURL,
		Reachability:     checker,
		TestSendClient:   testsend.New(),
		RecorderConsumer: "executor",
		Keyring:          keyring,
	}
	for _, change := range change {
		change(&config)
	}
	r.calls = operate.New(config)
	signIn := signin.New(signin.Config{
		AdminToken:      adminToken,
		Keys:            keyring,
		RevokedSessions: operate.NewRevokedSessions(records),
		OneTimeNonce:    nonce,
	})
	api := apiserver.New(apiserver.Config{
		Operate: r.calls, SignIn: signIn, Log: log,
	})
	pages := console.New(console.Config{
		Operate: r.calls, SignIn: signIn, Log: log,
	})
	r.server = httptest.NewServer(http.HandlerFunc(func(
		w http.ResponseWriter, request *http.Request,
	) {
		if strings.HasPrefix(request.URL.Path, "/api/") {
			api.ServeHTTP(w, request)
			return
		}
		pages.ServeHTTP(w, request)
	}))
	t.Cleanup(r.server.Close)
	t.Cleanup(func() {
		for _, secret := range []string{
			adminToken, nonce, webhook.TokenPrefix,
			operate.APIKeyPrefix,
		} {
			if strings.Contains(r.log.String(), secret) {
				t.Errorf("%s is in the log:\n%s", secret, r.log)
			}
		}
	})
	return r
}

// keyUses is a store in which reading the last-use times of keys fails while gone is true.
type keyUses struct {
	store.Store
	gone atomic.Bool
}

func (s *keyUses) TokensLastUsed(
	ctx context.Context, ids []string,
) (map[string]time.Time, error) {
	if s.gone.Load() {
		return nil, context.DeadlineExceeded
	}
	return s.Store.TokensLastUsed(ctx, ids)
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

type answer struct {
	status   int
	header   http.Header
	location string
	cookies  []*http.Cookie
	body     string
}

// call sends a request with the given form, and returns the answer. It does not follow redirects.
// The functions in change can modify the request first.
func (r *rig) call(method, path string, form url.Values, change ...func(*http.Request)) answer {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path,
		strings.NewReader(form.Encode()))
	r.check(err)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range change {
		c(request)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	r.check(err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	r.check(err)
	return answer{
		response.StatusCode, response.Header, response.Header.Get("Location"), response.Cookies(),
		string(body),
	}
}

func (r *rig) get(path string, change ...func(*http.Request)) answer {
	r.t.Helper()
	return r.call(http.MethodGet, path, nil, change...)
}

// signIn signs in with the admin token, and returns an option that adds the session to a request.
func (r *rig) signIn() func(*http.Request) {
	r.t.Helper()
	a := r.call(http.MethodPost, "/sign-in", url.Values{"token": {adminToken}})
	if a.status != http.StatusSeeOther || len(a.cookies) != 1 {
		r.t.Fatalf("sign in: %d, %v\n%s", a.status, a.cookies, a.body)
	}
	return with("Cookie", a.cookies[0].Name+"="+a.cookies[0].Value)
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}
