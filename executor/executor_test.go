package executor_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/stream"
)

func config(t *testing.T, natsURL string) executor.Config {
	t.Helper()
	c := executor.Config{
		DatabaseURL:   "sqlite:" + filepath.Join(t.TempDir(), "executions.db"),
		AdoptDatabase: true,
		AdminToken:    "secret",
		Replicas:      1,
		OpenPostgres:  postgres.OpenWithRetry,
	}
	c.Addr, c.OpsAddr, c.NATSURL = "127.0.0.1:0", "127.0.0.1:0", natsURL
	c.ConnectTimeout, c.ShutdownTimeout = 10*time.Second, time.Second
	c.StreamMaxAge, c.DedupWindow, c.Retention = 168*time.Hour, 24*time.Hour, 720*time.Hour
	c.LogLevel = "error"
	return c
}

// run starts an executor, stops it as soon as it is ready, and returns the error of Run.
func run(t *testing.T, c executor.Config) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.OnReady = func(executor.ListenAddresses) { cancel() }
	return executor.Run(ctx, c)
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	noPlans := filepath.Join(t.TempDir(), "plans.json")
	if err := os.WriteFile(noPlans, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*executor.Config)
		want   string
	}{
		"no admin token":      {func(c *executor.Config) { c.AdminToken = "" }, "--admin-token"},
		"a blank admin token": {func(c *executor.Config) { c.AdminToken = " " }, "--admin-token"},
		"no driver": {func(c *executor.Config) {
			c.DatabaseURL, c.OpenPostgres = "postgres://127.0.0.1/x", nil
		}, "no driver"},
		"no such database": {func(c *executor.Config) {
			c.DatabaseURL = "mysql://x"
		}, "--database-url"},
		"a folder as database": {func(c *executor.Config) {
			c.DatabaseURL = "sqlite:" + t.TempDir()
		}, "database"},
		"PostgreSQL away": {func(c *executor.Config) {
			c.DatabaseURL, c.ConnectTimeout = "postgres://me:geheim@127.0.0.1:1/x", 5*time.Second
		}, "cannot open the database x on 127.0.0.1 port 1 as me"},
		"a wrong URL is not waited for": {func(c *executor.Config) {
			c.DatabaseURL, c.ConnectTimeout = "postgres://me:geheim%zz@127.0.0.1:1/x", time.Hour
		}, "escaped as %XX"},
		"NATS away": {func(c *executor.Config) {
			c.NATSURL, c.ConnectTimeout = "nats://127.0.0.1:1", time.Millisecond
		}, "--nats-url"},
		"a window too long": {func(c *executor.Config) {
			c.DedupWindow = c.StreamMaxAge + 1
		}, "dedup window"},
		"two replicas": {func(c *executor.Config) { c.Replicas = 2 }, "replicas"},
		"three replicas on one server": {func(c *executor.Config) {
			c.NATSURL, c.Replicas, c.ConnectTimeout = natstest.Start(t).URL(), 3, time.Second
		}, "3 servers"},
		"no plan file": {func(c *executor.Config) {
			c.Plans = "/nowhere/plans.json"
		}, "--plans"},
		"no plan in it":    {func(c *executor.Config) { c.Plans = noPlans }, "catalog"},
		"a bad public URL": {func(c *executor.Config) { c.PublicURL = "ftp://x" }, "--public-url"},
		"a bad log level":  {func(c *executor.Config) { c.LogLevel = "loud" }, "--log-level"},
		"no such address":  {func(c *executor.Config) { c.Addr = "127.0.0.1:99999" }, "--addr"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := config(t, server.URL())
			c.change(&changed)
			err := run(t, changed)
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "geheim") {
				t.Errorf("%v", err)
			}
		})
	}
}

// An executor starts even if its plan catalog lacks plans that some accounts have. It then logs a
// warning with the number of these accounts for each plan.
func TestPlansThatTheCatalogLacks(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	for id, plan := range map[string]string{"a": "pro", "b": "pro", "c": "free"} {
		if _, _, err := r.PutAccount(t.Context(), id, "", plan); err != nil {
			t.Fatal(err)
		}
	}
	c := config(t, server.URL())
	c.Plans = filepath.Join(t.TempDir(), "plans.json")
	for catalog, want := range map[string]string{
		`[{"id":"free","webhookTriggers":true,"rateLimit":{"requests":1,"windowSeconds":1}}]`: `"accounts":{"pro":2}`,
		`[{"id":"free","webhookTriggers":true,"rateLimit":{"requests":1,"windowSeconds":1}},
		  {"id":"pro","webhookTriggers":true,"rateLimit":{"requests":1,"windowSeconds":1}}]`: "",
	} {
		if err := os.WriteFile(c.Plans, []byte(catalog), 0o600); err != nil {
			t.Fatal(err)
		}
		var logged logtest.Buffer // a goroutine of the executor may still write to it
		c.Log = &logrus.Logger{
			Out:       &logged,
			Formatter: &logrus.JSONFormatter{},
			Hooks:     logrus.LevelHooks{},
			Level:     logrus.WarnLevel,
		}
		if err := run(t, c); err != nil {
			t.Fatal(err)
		}
		if told := logged.String(); strings.Contains(told, "not in the catalog") != (want != "") ||
			!strings.Contains(told, want) {
			t.Errorf("%s: %s", catalog, told)
		}
	}
}

// An executor starts successfully even if the migration of its database takes longer than
// ConnectTimeout.
func TestStartAfterLongMigration(t *testing.T) {
	t.Parallel()
	c := config(t, natstest.Start(t).URL())
	c.DatabaseURL, c.ConnectTimeout = pgtest.NewDatabase(t), 15*time.Second
	migration, err := pgx.Connect(t.Context(), c.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	release := sync.OnceFunc(func() { _ = migration.Close(t.Context()) })
	defer release()
	// Hold the migration lock until ConnectTimeout has passed. The executor's migration waits for
	// the lock.
	if _, err := migration.Exec(t.Context(), `SELECT pg_advisory_lock($1)`,
		int64(relational.MigrationLock)); err != nil {
		t.Fatal(err)
	}
	c.OpenPostgres = func(ctx, starting context.Context, url string) (store.Store, error) {
		context.AfterFunc(starting, release)
		return postgres.OpenWithRetry(ctx, starting, url)
	}
	if err := run(t, c); err != nil {
		t.Error(err)
	}
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	c := config(t, server.URL())
	for range 2 { // the executor must also start with existing streams and records
		if err := run(t, c); err != nil {
			t.Fatal(err)
		}
	}
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings); err != nil {
		t.Error(err)
	}
	c.StreamMaxAge = 48 * time.Hour
	if err := run(t, c); err == nil ||
		!strings.Contains(err.Error(), "age is 168h0m0s, configured 48h0m0s") {
		t.Errorf("a stream with other settings: %v", err)
	}
}

// An executor responds to "OPTIONS *" with 400, whereas net/http would respond with 200 by default.
func TestOptionsOfAllIsNotAnswered(t *testing.T) {
	t.Parallel()
	c := config(t, natstest.Start(t).URL())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	status := make(chan string, 1)
	c.OnReady = func(where executor.ListenAddresses) {
		defer cancel()
		answer, err := http.DefaultClient.Do(&http.Request{
			Method: http.MethodOptions,
			URL:    &url.URL{Scheme: "http", Host: where.Addr, Opaque: "*"},
		})
		if err != nil {
			status <- err.Error()
			return
		}
		_ = answer.Body.Close()
		status <- answer.Status
	}
	if err := executor.Run(ctx, c); err != nil {
		t.Fatal(err)
	}
	if got := <-status; got != "400 Bad Request" {
		t.Error(got)
	}
}

// NATS loses its storage while an executor is running. The executor recreates the streams and
// buckets, restores the registry from the database, and continues to work.
func TestWhatNATSHasLostIsMadeAnew(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := config(t, server.URL())
	ready, ended := make(chan string, 1), make(chan error, 1)
	c.OnReady = func(l executor.ListenAddresses) { ready <- l.Addr }
	go func() { ended <- executor.Run(ctx, c) }()
	var addr string
	select {
	case addr = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	var body []byte // body of the last response
	put := func(account string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodPut,
			"http://"+addr+"/api/v1/accounts/"+account,
			strings.NewReader(`{"name":"n","plan":"pro"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer secret")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	if status := put("before"); status != http.StatusCreated {
		t.Fatal(status)
	}

	names := append(registry.Streams(), stream.ExecutionsName, stream.ProgressName,
		stream.ReportsName)
	for _, name := range names {
		if err := js.DeleteStream(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	patience, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	for _, name := range names {
		for {
			if _, err := js.Stream(patience, name); err == nil {
				break
			} else if patience.Err() != nil {
				t.Fatalf("%s: %v", name, err)
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	for put("before") != http.StatusOK { // the registry is restored from the database
		if patience.Err() != nil {
			t.Fatalf("the registry was not restored: %s", body)
		}
		<-time.After(50 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A change is in flight when the executor is told to stop. The executor completes and confirms the
// change before it exits.
func TestAChangeInFlightIsConfirmed(t *testing.T) {
	t.Parallel()
	c := config(t, natstest.Start(t).URL())
	c.ShutdownTimeout = 30 * time.Second
	var logged logtest.Buffer
	c.Log = &logrus.Logger{
		Out:       &logged,
		Formatter: &logrus.JSONFormatter{},
		Hooks:     logrus.LevelHooks{},
		Level:     logrus.InfoLevel,
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan string, 1), make(chan error, 1)
	c.OnReady = func(l executor.ListenAddresses) { ready <- l.Addr }
	go func() { ended <- executor.Run(ctx, c) }()
	var addr string
	select {
	case addr = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const body = `{"name":"n","plan":"pro"}`
	if _, err := fmt.Fprintf(conn, "PUT /api/v1/accounts/a HTTP/1.1\r\nHost: %s\r\n"+
		"Authorization: Bearer secret\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
		addr, len(body)); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	// The response 100 Continue means that the handler has begun to read the body, so the change is
	// in flight.
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := answers.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	for !strings.Contains(logged.String(), "finishes what is in flight") {
		select {
		case err := <-ended:
			t.Fatalf("it ended without the change: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if _, err := conn.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		t.Error(answer.Status)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
