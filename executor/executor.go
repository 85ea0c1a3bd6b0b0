// Package executor consumes the stream and records executions; it serves the
// operators' API and the console.
package executor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/apiserver"
	"github.com/hookstart/hookstart/executor/internal/auditor"
	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/console"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/queues"
	"github.com/hookstart/hookstart/executor/internal/reach"
	"github.com/hookstart/hookstart/executor/internal/recorder"
	"github.com/hookstart/hookstart/executor/internal/signin"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/measured"
	"github.com/hookstart/hookstart/executor/internal/store/postgres"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/agree"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/tlsfiles"
	"github.com/hookstart/hookstart/shared/tracing"
	"github.com/hookstart/hookstart/shared/tracing/otlp"
)

// Run records and serves until the context ends, then finishes what is in flight and
// returns nil. Its errors are for people: one line that says what to do.
func Run(ctx context.Context, c Config) error {
	err := run(ctx, c)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ended by the caller while waiting at the start: not a failure
	}
	return err
}

func run(ctx context.Context, c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	o, log, opsAddr, stopOps, err := ops.Begin(ctx, "executor", c.Ops, c.Log, c.LogLevel, c.OpsAddr)
	if err != nil {
		return err
	}
	defer stopOps()
	if c.Ops == nil {
		traces, stopTraces, err := otlp.Start(ctx, "executor", log)
		if err != nil {
			return err
		}
		defer stopTraces()
		o.Traces = traces
	}
	plans, err := readPlans(c.Plans, c.DefaultPlan)
	if err != nil {
		return err
	}
	keys, err := seal.ReadFile(c.SecretsKeyFile)
	if err != nil {
		return err
	}
	if len(c.AdminToken) < minAdminToken {
		log.Warnf("the admin token is shorter than %d characters and can be guessed: choose a longer one, for example with openssl rand -hex 24", minAdminToken)
	}
	listener := c.Listener
	if listener == nil {
		if listener, err = ops.Listen(ctx, c.Addr, "--addr"); err != nil {
			return err
		}
	}
	defer func() { _ = listener.Close() }()
	serving, err := tlsfiles.Listen(listener, c.TLSCert, c.TLSKey, "executor", o.Metrics, log)
	if err != nil {
		return err
	}

	starting, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
	defer cancel()
	nc, err := bus.Connect(starting, bus.Options{
		URL: c.NATSURL, Name: "hookstart executor", Timeout: c.ConnectTimeout,
		CredsFile: c.NATSCreds, CAFile: c.NATSCA, Extra: c.NATSOptions, Log: log,
	})
	if err != nil {
		return err
	}
	defer nc.Close()
	bus.Register(o.Metrics, "executor", nc)
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	if err := ensure(starting, nc, js, c); err != nil {
		return err
	}
	records, err := openStore(starting, c.DatabaseURL, log)
	if err != nil {
		return err
	}
	defer func() { _ = records.Close() }()
	records = measured.New(records, o.Metrics)

	directory := edit.NewDirectory(keys)
	follower, err := agree.Follow(starting, js, directory, log)
	if err != nil {
		return err
	}
	defer follower.Stop()
	o.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hookstart_executor_registry_revision", Help: "The registry revision that is in force here.",
	}, func() float64 { return float64(follower.Revision()) }))
	callRoll := agree.CallRoll
	if c.FreshNATS {
		callRoll = agree.CallFirstRoll
	}
	roll, err := callRoll(ctx, nc)
	if err != nil {
		return err
	}
	defer roll.Stop()
	// From here on changes of the registry, by this executor too, wait for this process.
	announcer, err := agree.Announce(starting, nc, follower, agree.RoleExecutor, nil, log)
	if err != nil {
		return err
	}
	defer announcer.Stop()
	lease := agree.NewLease(nc, follower) //nolint:contextcheck // it is renewed until the last call is answered
	defer lease.Stop()
	editor, err := edit.NewEditor(starting, js, directory, follower, lease, roll)
	if err != nil {
		return err
	}
	editor.SealWith(keys)
	if n, why := directory.Unusable(); n > 0 {
		log.WithError(why).WithField("workflows", n).Error("senders' secrets cannot be opened: their nodes refuse everything until --secrets-key-file has the key, or the sender is set anew")
	}
	if err := putPlans(starting, editor, plans); err != nil {
		return err
	}
	warnOfLostPlans(directory, plans, log)
	changed, err := changes.New(nc)
	if err != nil {
		return err
	}
	defer changed.Stop()

	waits, err := queues.New(queues.Config{Conn: nc, JetStream: js, Named: directory.Queues, Recorder: recorder.Durable})
	if err != nil {
		return err
	}
	defer waits.Stop()
	o.Metrics.MustRegister(waits)

	// The parts that work in the background end before what they work on is closed.
	var background sync.WaitGroup
	defer background.Wait()
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	r := recorder.New(js, records, changed, o, log)
	r.SendersFirst, r.Retention, r.Captured = c.SendersFirst, c.Retention, editor.CaptureSenderSecret
	background.Go(func() { r.Run(working) })
	background.Go(func() { r.RunReports(working) })
	background.Go(func() { r.EndLost(working) })
	background.Go(func() { waits.Run(working) })
	letters := newDeadLetters(o.Metrics)
	background.Go(func() { letters.watch(working, records) })
	background.Go(func() {
		keepRegistry(working, log, func(ctx context.Context) error {
			err := ensureRegistry(ctx, nc, js, c)
			if err != nil || directory.Plans().Record != nil {
				return err
			}
			return putPlans(ctx, editor, plans) // it was made anew
		})
	})
	background.Go(func() { prune(working, records, c.Retention, log) })
	background.Go(func() { pruneEarly(working, records, c.StreamMaxAge, log) })
	background.Go(func() { pruneCounts(working, records, log) })
	audit := auditor.New(js, records, log)
	for _, name := range registry.Streams() {
		background.Go(func() { audit.Run(working, name) })
	}
	if c.AuditRetention > 0 {
		background.Go(func() {
			pruning(working, "entries of the audit", log, func() (int, error) {
				return records.PruneAudit(working, time.Now().Add(-c.AuditRetention), pruneBatch)
			})
		})
	}

	streaming, stopStreaming := context.WithCancel(ctx)
	defer stopStreaming()
	keyring := operate.NewKeyring(editor, directory, records, log)
	background.Go(func() { keyring.Run(working) })
	identities, err := c.oidc()
	if err != nil {
		return err
	}
	calls := operate.New(operate.Config{
		Editor: editor, Directory: directory, Roll: roll, Store: records, JetStream: js, Queues: waits, Changes: changed, Keyring: keyring,
		AuditCaughtUp: func(ctx context.Context) { auditor.CaughtUp(ctx, js) },
		DefaultPlan:   c.DefaultPlan, PublicURL: c.PublicURL, Reach: reach.New(c.PublicURL, roll), Consumer: recorder.Durable, Tracer: tracing.Tracer(o.Traces, "executor"),
	})
	signIn := signin.New(signin.Config{
		AdminToken: c.AdminToken, Note: calls.NoteSignIn, Keys: keyring, Once: c.SignInOnce, OIDC: identities, Failures: signin.NewFailures(o.Metrics),
	})
	api := apiserver.New(apiserver.Config{Operate: calls, SignIn: signIn, Origins: c.APIOrigins, Log: log, Done: streaming.Done()})
	pages := console.New(console.Config{Operate: calls, SignIn: signIn, DemoQueue: c.DemoQueue, Log: log})
	server := &http.Server{
		Handler: apiAnd(api, pages), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout:   time.Minute, // event streams set their own for each write
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 28 << 10, ErrorLog: ops.ServerLog(log),
		DisableGeneralOptionsHandler: true, // else anybody gets a 200 for OPTIONS *
	}
	server.RegisterOnShutdown(stopStreaming)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(serving) }()
	stopChecks := o.Watch(ctx, log, checks(nc, js, follower, records, c)...)
	defer stopChecks()
	o.Ready.Ready("executor")
	where := Listening{Addr: listener.Addr().String(), OpsAddr: opsAddr}
	log.WithFields(logrus.Fields{"addr": where.Addr, "ops_addr": where.OpsAddr, "version": ops.Version}).Info("executor is ready")
	if c.OnReady != nil {
		c.OnReady(where)
	}

	select {
	case err := <-failed:
		return fmt.Errorf("the operators' API ended: %w", err)
	case <-ctx.Done():
	}
	o.Ready.NotReady("executor", "stopping")
	log.Info("executor stops: it finishes what is in flight")
	finishing, cancelFinishing := context.WithTimeout(context.WithoutCancel(ctx), c.ShutdownTimeout)
	defer cancelFinishing()
	if err := server.Shutdown(finishing); err != nil {
		log.WithError(err).Warn("requests in flight took too long and were cut off")
		_ = server.Close()
	}
	return nil
}

// minAdminToken is how long an admin token should be. A shorter one is only warned of: it may be
// that of an installation that works.
const minAdminToken = 16

// apiAnd serves the API below /api/, and pages elsewhere. It is no ServeMux, which would
// redirect what it takes for untidy before either sees it.
func apiAnd(api, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			api.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

const sqlitePrefix = "sqlite:"

func isPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// openStore opens the database. A PostgreSQL server is waited for until the context ends.
func openStore(ctx context.Context, url string, log logrus.FieldLogger) (store.Store, error) {
	if path, isSQLite := strings.CutPrefix(url, sqlitePrefix); isSQLite {
		return opened(sqlite.OpenLogged(ctx, path, log))
	}
	var why error
	for {
		s, err := opened(postgres.Open(ctx, url))
		if err == nil || errors.Is(err, postgres.ErrURL) {
			return s, err
		}
		if why == nil || ctx.Err() == nil { // once the time is up, the error says no more than that
			why = err
		}
		select {
		case <-ctx.Done():
			return nil, why
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// opened keeps a nil driver from becoming a store that is not nil.
func opened[S store.Store](s S, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// readPlans reads the catalog, which must have the default plan if there is one.
func readPlans(path, defaultPlan string) (*hookstartv1.PlanCatalog, error) {
	catalog := edit.DefaultPlans
	if path != "" {
		var err error
		if catalog, err = os.ReadFile(path); err != nil { //nolint:gosec // the operator's own file
			return nil, fmt.Errorf("--plans: %w", err)
		}
	}
	plans, err := edit.ParsePlans(catalog)
	if err != nil || defaultPlan == "" {
		return plans, err
	}
	if !slices.ContainsFunc(plans.GetPlans(), func(p *hookstartv1.Plan) bool { return p.GetId() == defaultPlan }) {
		return nil, fmt.Errorf("--default-plan: there is no plan %q in the catalog", defaultPlan)
	}
	return plans, nil
}

// planTimeout is how long one attempt to put the plan catalog in force may take.
const planTimeout = 5 * time.Second

// putPlans puts the catalog in force, trying until the context ends: NATS may be away for a
// moment.
func putPlans(ctx context.Context, editor *edit.Editor, plans *hookstartv1.PlanCatalog) error {
	for {
		trying, cancel := context.WithTimeout(ctx, planTimeout)
		err := editor.PutPlans(trying, plans)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the plan catalog: %w", err)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// warnOfLostPlans says how many accounts have a plan that the catalog does not have: nothing
// else tells an operator who left it out.
func warnOfLostPlans(directory *edit.Directory, plans *hookstartv1.PlanCatalog, log logrus.FieldLogger) {
	known := map[string]bool{}
	for _, plan := range plans.GetPlans() {
		known[plan.GetId()] = true
	}
	lost := map[string]int{}
	for _, account := range directory.Accounts("", math.MaxInt) {
		if !known[account.GetPlan()] {
			lost[account.GetPlan()]++
		}
	}
	if len(lost) > 0 {
		log.WithField("accounts", lost).Warn("accounts have plans that are not in the catalog, so their webhooks are refused; " +
			"put the plans back into it, or give the accounts other ones")
	}
}

const (
	pruneEvery = 10 * time.Minute
	// pruneBatch and prunePause keep what is recorded meanwhile from waiting for long: a database that has one writer
	// at a time records between two batches.
	pruneBatch = 500
	prunePause = 20 * time.Millisecond
)

// countsRetention is how long is kept what is counted by the minute. Reports stay in their
// stream for a day, and must be known for longer.
const countsRetention = 7 * 24 * time.Hour

// prune deletes the records that are past their retention.
func prune(ctx context.Context, records store.Store, retention time.Duration, log logrus.FieldLogger) {
	pruning(ctx, "records", log, func() (int, error) { return records.Prune(ctx, time.Now().Add(-retention), pruneBatch) })
}

// pruneEarly forgets reports whose starts have expired without being recorded.
func pruneEarly(ctx context.Context, records store.Store, age time.Duration, log logrus.FieldLogger) {
	pruning(ctx, "reports of unknown executions", log, func() (int, error) { return records.PruneEarly(ctx, time.Now().Add(-age)) })
}

// pruneCounts deletes what was counted by the minute and is old, or too much.
func pruneCounts(ctx context.Context, records store.Store, log logrus.FieldLogger) {
	pruning(ctx, "refusals", log, func() (int, error) {
		return records.PruneCounts(ctx, time.Now().Add(-countsRetention), store.MaxRefusals, pruneBatch)
	})
}

// pruning deletes now and then, batch by batch.
func pruning(ctx context.Context, what string, log logrus.FieldLogger, batch func() (int, error)) {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		deleted := 0
		for more := true; more && ctx.Err() == nil; {
			n, err := batch()
			if err != nil && ctx.Err() == nil {
				log.WithError(err).Warn("old " + what + " were not deleted; it is tried again later")
			}
			deleted += n
			if more = err == nil && n == pruneBatch; more {
				select {
				case <-ctx.Done():
				case <-time.After(prunePause):
				}
			}
		}
		if deleted > 0 {
			log.WithField(what, deleted).Info("old " + what + " deleted")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
