// Package executor records the executions that the streams deliver, and serves the operators' API
// and the console.
//
// It has two halves, which do not import each other. The packages in internal/record store what the
// streams deliver: recorder stores executions, auditor the audit log, and databasecopy the copy of
// the registry; holdings adds up how much each account has stored in a stream that is nearly full.
// The packages in internal/operators serve operators: operate has one method for each operation,
// and apiserver and console make the operations available over HTTP. Both halves share the other
// packages in internal. The most important are store, the interface of the database, and audit, the
// actions and entries of the audit log. This package connects the halves.
package executor

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/operators/apiserver"
	"github.com/hookstart/hookstart/executor/internal/operators/console"
	"github.com/hookstart/hookstart/executor/internal/operators/events"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/operators/queuestreams"
	"github.com/hookstart/hookstart/executor/internal/operators/reachability"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/executor/internal/operators/testsend"
	"github.com/hookstart/hookstart/executor/internal/record/auditor"
	"github.com/hookstart/hookstart/executor/internal/record/databasecopy"
	"github.com/hookstart/hookstart/executor/internal/record/holdings"
	"github.com/hookstart/hookstart/executor/internal/record/recorder"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/instrumented"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/service"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/tracing"
)

// Run records executions and serves operators until ctx is done. It then waits for the requests in
// flight and returns nil. Its errors are single lines that tell an operator how to solve the
// problem.
func Run(ctx context.Context, c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	plans, err := readPlans(c.Plans, c.DefaultPlan)
	if err != nil {
		return err
	}
	keys, err := seal.ReadKeyFile(c.SecretsKeyFile)
	if err != nil {
		return err
	}
	return service.Run(ctx, c.serviceConfig(), func(ctx context.Context, s *service.Service) error {
		e := &executor{
			Service:       s,
			config:        c,
			plans:         plans,
			keys:          keys,
			registryIndex: edit.NewRegistryIndex(keys),
		}
		return e.run(ctx)
	})
}

func (c *Config) serviceConfig() service.Config {
	return service.Config{
		Name:              "executor",
		Description:       "the operators' API",
		Addr:              c.Addr,
		OpsFlags:          c.OpsFlags,
		TLSFlags:          c.TLSFlags,
		NATSFlags:         c.NATSFlags,
		ConnectFlags:      c.ConnectFlags,
		ShutdownFlags:     c.ShutdownFlags,
		LogFlags:          c.LogFlags,
		InProcessSettings: c.InProcessSettings,
	}
}

// executor holds the state of one call to Run. Its run method calls the other methods one after
// another, and these fill in the fields.
type executor struct {
	*service.Service
	config        Config
	plans         registry.Plans
	keys          *seal.Keys
	registryIndex *edit.RegistryIndex // the registry's records, in memory

	store          store.Store
	follower       *consistency.Follower   // applies the registry's changes to registryIndex
	membership     *consistency.Membership // tracks the processes that follow the registry
	databaseCopy   *databasecopy.RegistryCopier
	mirrorWatchdog *edit.MirrorWatchdog // nil without --registry-copy
	editor         *edit.Editor
	changeNotifier *changes.Notifier
	queueWatcher   *queues.Watcher
	keyring        *operate.Keyring
	queueMover     *queuestreams.Mover
	recorder       *recorder.Recorder // set before the API is served
}

func (e *executor) run(ctx context.Context) error {
	if len(e.config.AdminToken) < recommendedAdminTokenLength {
		e.Log.Warnf("the admin token is shorter than %d characters and can be guessed: choose a "+
			"longer one, for example with openssl rand -hex 24", recommendedAdminTokenLength)
	}
	if err := e.connect(ctx); err != nil {
		return err
	}
	// The migration of the database may have taken longer than ConnectTimeout, so the following
	// steps have a time limit of their own.
	starting, cancel := context.WithTimeout(ctx, e.config.ConnectTimeout)
	defer cancel()
	if err := e.followRegistry(starting); err != nil {
		return err
	}
	if err := e.restoreRegistryAndCreateEditor(starting); err != nil {
		return err
	}
	if err := e.checkEncryptionKeys(starting); err != nil {
		return err
	}
	if err := e.putPlans(starting); err != nil {
		return err
	}
	if err := e.prepareWatchers(starting); err != nil {
		return err
	}
	handler, err := e.newHandler(ctx)
	if err != nil {
		return err
	}
	e.startEventPublishing(ctx)
	// Background tasks stop before the resources that they use are closed.
	e.startRecording(ctx)
	e.startMaintenance(ctx)
	e.startPruneTasks(ctx, e.store)

	var ready func(addr, opsAddr string)
	if e.config.OnReady != nil {
		ready = func(addr, opsAddr string) {
			e.config.OnReady(ListenAddresses{Addr: addr, OpsAddr: opsAddr})
		}
	}
	return e.Serve(ctx, e.newServer(handler),
		readinessChecks(e.NATS, e.JetStream, e.follower, e.databaseCopy, e.store, e.config,
			e.Log),
		nil, ready)
}

// connect connects to NATS, creates the streams and buckets, and opens the database.
func (e *executor) connect(ctx context.Context) error {
	starting, cancel := context.WithTimeout(ctx, e.config.ConnectTimeout)
	defer cancel()
	if err := e.Connect(starting); err != nil {
		return err
	}
	if err := ensureJetStreamWithRetry(starting, e.NATS, e.JetStream, e.config); err != nil {
		return err
	}
	records, err := e.config.openStore(ctx, starting)
	if err != nil {
		return err
	}
	e.Add(func() { _ = records.Close() })
	records.SetObserver(instrumented.NewObserver(e.Ops.Metrics))
	e.store = records
	return nil
}

// followRegistry loads the registry and announces this process to the other processes. From then
// on, no process confirms a change to the registry before this process has applied the change.
func (e *executor) followRegistry(ctx context.Context) (err error) {
	if e.follower, err = consistency.Follow(ctx, e.JetStream, e.registryIndex, e.Log); err != nil {
		return err
	}
	e.Add(e.follower.Stop)
	e.Ops.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hookstart_executor_registry_revision",
		Help: "The registry revision that is in force here.",
	}, func() float64 { return float64(e.follower.Revision()) }))
	join := consistency.Join
	if e.config.FreshNATS {
		join = consistency.JoinAsFirst
	}
	if e.membership, err = join(ctx, e.NATS); err != nil {
		return err
	}
	e.Add(e.membership.Stop)
	heartbeat, err := consistency.StartHeartbeat(ctx, e.NATS, e.follower,
		consistency.RoleExecutor, nil, consistency.ProcessInfo{
			Version:       ops.Version,
			KeyIDs:        e.keys.IDs(),
			SchemaVersion: e.store.SupportedSchemaVersion(),
		}, e.Log)
	if err != nil {
		return err
	}
	e.Add(heartbeat.Stop)
	return nil
}

// restoreAckTimeout is how long a restore of the registry waits for NATS to acknowledge a record
// before it stores the record again.
const restoreAckTimeout = 5 * time.Second

// restoreRegistryAndCreateEditor restores a lost or outdated registry from its copy in the
// database, and creates the editor of the registry.
func (e *executor) restoreRegistryAndCreateEditor(ctx context.Context) (err error) {
	js, err := jetstream.New(e.NATS, jetstream.WithPublishAsyncTimeout(restoreAckTimeout))
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	missing := stream.MissingStreams{}
	e.databaseCopy = databasecopy.New(databasecopy.Config{
		JetStream:     js,
		Store:         e.store,
		Follower:      e.follower,
		AdoptDatabase: e.config.AdoptDatabase,
		Log:           e.Log,
		EnsureBuckets: func(ctx context.Context) error {
			return ensureRegistry(ctx, e.NATS, e.JetStream, e.config, missing)
		},
	})
	if err := e.databaseCopy.Initialize(ctx); err != nil {
		return err
	}
	if e.config.RegistryCopy != "" {
		if e.mirrorWatchdog, err = edit.NewMirrorWatchdog(e.NATS, e.config.RegistryCopy,
			e.follower.CatchUp, e.Log); err != nil {
			return err
		}
	}
	//nolint:contextcheck // the lease is renewed until the last response is sent
	lease := consistency.NewLease(e.NATS, e.follower)
	e.Add(lease.Stop)
	if e.editor, err = edit.NewEditor(ctx, edit.Config{
		JetStream:     e.JetStream,
		RegistryIndex: e.registryIndex,
		Follower:      e.follower,
		Lease:         lease,
		Membership:    e.membership,
		Keys:          e.keys,
		DatabaseCopy:  e.databaseCopy,
	}); err != nil {
		return err
	}
	if n, why := e.registryIndex.UnusableSenderCount(); n > 0 {
		e.Log.WithError(why).WithField("workflows",
			n).Error("senders' secrets cannot be opened: their nodes refuse everything until " +
			"--secrets-key-file has the key, or the sender is set anew")
	}
	return nil
}

// putPlans stores the plan catalog in the registry. While the registry is unusable, for example
// because a backup is being restored, it does nothing, and restorePlansPeriodically stores the
// catalog later.
func (e *executor) putPlans(ctx context.Context) error {
	if e.databaseCopy.UnusableReason() != nil {
		return nil //nolint:nilerr // restorePlansPeriodically does it later
	}
	if err := putPlansWithRetry(ctx, e.editor, e.plans); err != nil {
		return err
	}
	warnOfMissingPlans(e.registryIndex, e.plans, e.Log)
	return nil
}

// prepareWatchers creates changeNotifier, which notifies watchers of changed records, and
// queueWatcher, which counts the executions and the runners of each queue.
func (e *executor) prepareWatchers(ctx context.Context) (err error) {
	if e.changeNotifier, err = changes.New(e.NATS); err != nil {
		return err
	}
	e.Add(e.changeNotifier.Stop)
	// The executor can run without the stream of changes. Clients that resume an event stream are
	// then told that they may have missed changes.
	err = changes.EnsureStream(ctx, e.JetStream, e.config.Replicas)
	if err == nil {
		err = e.changeNotifier.LoadRecent(ctx, e.JetStream)
	}
	if err != nil {
		e.Log.WithError(err).Warn("the changes before this start cannot be read: clients that " +
			"resume an event stream learn that changes may be missing")
	}
	if e.queueWatcher, err = queues.New(queues.Config{
		Conn:             e.NATS,
		JetStream:        e.JetStream,
		QueueNames:       e.registryIndex.QueueNames,
		Settings:         e.registryIndex.QueueSettings,
		RecorderConsumer: stream.RecorderConsumerName,
	}); err != nil {
		return err
	}
	e.Add(e.queueWatcher.Stop)
	e.Ops.Metrics.MustRegister(e.queueWatcher)
	return nil
}

// newHandler returns the HTTP handler of the API and the console. Event streams end when ctx is
// done.
func (e *executor) newHandler(ctx context.Context) (http.Handler, error) {
	c := e.config
	identities, err := c.oidcProvider()
	if err != nil {
		return nil, err
	}
	e.keyring = operate.NewKeyring(e.editor, e.registryIndex, e.store, e.Log)
	e.queueMover = queuestreams.New(queuestreams.Config{
		JetStream:     e.JetStream,
		Editor:        e.editor,
		RegistryIndex: e.registryIndex,
		Settings:      c.streamSettings(),
		Log:           e.Log,
	})
	e.Ops.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hookstart_executor_queue_move_seconds",
		Help: "For how long the move of a queue to another stream has lasted; 0: none moves.",
	}, func() float64 { return e.queueMover.LongestMoveDuration().Seconds() }))
	e.Go(ctx, e.queueMover.Run)
	calls := operate.New(operate.Config{
		StreamMover:   e.queueMover,
		Editor:        e.editor,
		RegistryIndex: e.registryIndex,
		Membership:    e.membership,
		Store:         e.store,
		JetStream:     e.JetStream,
		Queues:        e.queueWatcher,
		Changes:       e.changeNotifier,
		Keyring:       e.keyring,
		AwaitAuditLog: func(ctx context.Context) {
			auditor.AwaitAllCopied(ctx, e.JetStream)
			recorder.AwaitStartsRecorded(ctx, e.JetStream)
		},
		OnRecordedLate:   func(accepted time.Time) { e.recorder.NoteRecordedLate(accepted) },
		DefaultPlan:      c.DefaultPlan,
		PublicURL:        c.PublicURL,
		Reachability:     reachability.New(c.PublicURL, e.membership),
		TestSendClient:   testsend.New(),
		RecorderConsumer: stream.RecorderConsumerName,
		Retention:        c.Retention,
		Tracer:           tracing.Tracer(e.Ops.TracerProvider, "executor"),
	})
	e.Go(ctx, func(ctx context.Context) {
		operate.RunCancellationRecovery(ctx, calls, c.StreamMaxAge)
	})
	signIn := signin.New(signin.Config{
		AdminToken:      c.AdminToken,
		OnSignIn:        calls.AuditSignIn,
		Keys:            e.keyring,
		RevokedSessions: operate.NewRevokedSessions(e.store),
		OneTimeNonce:    c.OneTimeSignInNonce,
		OIDC:            identities,
		FailureThrottle: signin.NewFailureThrottle(e.Ops.Metrics),
	})
	//nolint:contextcheck // each call has the context of its request
	api := apiserver.New(apiserver.Config{
		Operate:         calls,
		SignIn:          signIn,
		AllowedOrigins:  c.APIOrigins,
		Log:             e.Log,
		ShutdownStarted: ctx.Done(),
	})
	pages := console.New(console.Config{
		Operate:   calls,
		SignIn:    signIn,
		DemoQueue: c.DemoQueue,
		Log:       e.Log,
	})
	return routeAPIAndPages(api, pages), nil
}

// startEventPublishing starts publishing operator events. Call it before startRecording: it calls
// SetFailureCauseFunc, which must precede the recorder's first transaction.
func (e *executor) startEventPublishing(ctx context.Context) {
	made := events.New(events.Config{
		Store:                      e.store,
		RegistryIndex:              e.registryIndex,
		JetStream:                  e.JetStream,
		Queues:                     e.queueWatcher,
		ExecutorID:                 uuid.NewString(),
		RegistryIndexComplete:      func() bool { return e.databaseCopy.UnusableReason() == nil },
		EnsureRegistryIndexCurrent: e.editor.EnsureCurrent,
		AwaitRecorded: func(ctx context.Context, queue string) {
			recorder.AwaitQueueStartsRecorded(ctx, e.JetStream, queue)
		},
		DedupWindow: e.config.DedupWindow,
		Log:         e.Log,
	})
	e.store.SetFailureCauseFunc(made.FailureCause)
	e.Go(ctx, made.Run)
	e.Go(ctx, made.WatchConditions)
}

// startRecording starts recording executions and audit entries.
func (e *executor) startRecording(ctx context.Context) {
	audit := auditor.New(e.JetStream, e.store, e.Log)
	e.recorder = recorder.New(recorder.Config{
		JetStream:              e.JetStream,
		Store:                  e.store,
		Changes:                e.changeNotifier,
		Ops:                    e.Ops,
		Log:                    e.Log,
		PublishingRequests:     e.config.Publishing,
		Retention:              e.config.Retention,
		SaveCapturedSecret:     e.editor.CaptureSenderSecret,
		SenderPreset:           e.editor.SenderPreset,
		WorkflowInAccountSince: e.workflowInAccountSince,
		OnDatabaseBehind:       audit.RecopyAll,
		SkippingConsumers:      e.config.SkippingConsumers,
		OnRedelivered:          e.config.OnRedelivered,
	})
	e.Go(ctx, e.recorder.Run)
	e.Go(ctx, e.recorder.ApplyIngressReports)
	e.Go(ctx, e.recorder.EndLostExecutions)
	for _, name := range registry.Streams() {
		// The auditor must keep running when ctx is done, because requests in flight wait for it.
		// e.Stop ends it after the HTTP server has stopped.
		e.Go(context.WithoutCancel(ctx), func(ctx context.Context) { audit.Run(ctx, name) })
	}
}

// workflowInAccountSince returns when a workflow was created in its current account or moved to it.
// ok is false if there is no workflow with that ID.
func (e *executor) workflowInAccountSince(
	ctx context.Context, id string,
) (at time.Time, ok bool, err error) {
	if err := e.editor.EnsureCurrent(ctx); err != nil {
		return at, false, err
	}
	w, ok := e.registryIndex.Workflow(id)
	if !ok {
		return at, false, nil
	}
	return w.Record.InAccountSince(), true, nil
}

// accountOf returns the account of a workflow, or "" if there is no such workflow.
func (e *executor) accountOf(workflowID string) string {
	w, ok := e.registryIndex.Workflow(workflowID)
	if !ok {
		return ""
	}
	return w.Record.AccountID
}

// transitionCheckInterval is how often the executor looks for workflows whose activation or
// deactivation has begun but was not completed. The interval is longer than a process spends on one
// activation or deactivation. If two checks in a row find the same one unfinished, the process that
// began it has therefore given up.
const transitionCheckInterval = 20 * time.Second

// startMaintenance starts the background jobs that maintain queues, stream settings, keys, dead
// letters and the registry.
func (e *executor) startMaintenance(ctx context.Context) {
	e.Go(ctx, e.queueWatcher.Run)
	edited := newStreamSettingsMonitor(e.Ops.Metrics, e.Log)
	e.Go(ctx, func(ctx context.Context) {
		edited.watch(ctx, e.JetStream, e.config.streamSettings())
	})
	held := holdings.New(holdings.Config{
		JetStream: e.JetStream,
		AccountOf: e.accountOf,
		Log:       e.Log,
	})
	e.Go(ctx, held.Run)
	e.Go(ctx, e.keyring.Run)
	e.Go(ctx, func(ctx context.Context) {
		e.editor.FinishTransitionsPeriodically(ctx, transitionCheckInterval)
	})
	e.Go(ctx, e.warnOfMissingEncryptionKeys)
	letters := newDeadLetterGauge(e.Ops.Metrics)
	e.Go(ctx, func(ctx context.Context) { letters.updatePeriodically(ctx, e.store) })
	// The database copy must keep running when ctx is done, because a change in flight is confirmed
	// only when the copy has it. e.Stop ends it after the HTTP server has stopped.
	e.Go(context.WithoutCancel(ctx), e.databaseCopy.Run)
	if e.mirrorWatchdog != nil {
		e.Go(ctx, e.mirrorWatchdog.Run)
	}
	e.Go(ctx, func(ctx context.Context) {
		restorePlansPeriodically(ctx, e.Log, func(ctx context.Context) error {
			if e.databaseCopy.UnusableReason() != nil || e.registryIndex.Plans().Record != nil {
				return nil //nolint:nilerr // restorePlansPeriodically tries again
			}
			return putPlansWithRetry(ctx, e.editor, e.plans) // a backup has been restored
		})
	})
}

// checkEncryptionKeys returns an error if there are encrypted records, but the configured keys
// decrypt none of them. Without a key file, it returns nil even then, because an operator who has
// lost the keys must be able to set all secrets again.
func (e *executor) checkEncryptionKeys(ctx context.Context) error {
	if !e.keys.CanSeal() {
		return nil
	}
	found, err := e.editor.CountDecryptableSecrets(ctx, func(s registry.DecryptionCounts) bool {
		return s.Decryptable > 0
	})
	if err != nil {
		return err
	}
	return found.CheckAnyDecrypted(e.keys)
}

// warnOfMissingEncryptionKeys logs a warning if some records are encrypted with keys that are not
// configured.
func (e *executor) warnOfMissingEncryptionKeys(ctx context.Context) {
	found, err := e.editor.CountDecryptableSecrets(ctx,
		func(registry.DecryptionCounts) bool { return false })
	switch warning := found.Warning(); {
	case ctx.Err() != nil:
	case err != nil:
		e.Log.WithError(err).Warn("which keys are missing could not be found out")
	case warning != "":
		e.Log.WithField("records", found.Undecryptable).Warn(warning)
	}
}

// newServer returns an HTTP server for handler, with timeouts and with a limit for the size of
// request headers.
func (e *executor) newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout:   time.Minute, // event streams set a deadline for each write
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 28 << 10, ErrorLog: ops.NewServerLogger(e.Log),
		DisableGeneralOptionsHandler: true, // otherwise any client would get a 200 for OPTIONS *
	}
}

// recommendedAdminTokenLength is the recommended minimum length of an admin token. A shorter one
// causes only a warning, because existing installations may use one.
const recommendedAdminTokenLength = 16

// routeAPIAndPages returns a handler that passes requests for paths below /api/ to api and all
// others to pages. It does not use a ServeMux, which would redirect paths that it considers
// unclean.
func routeAPIAndPages(api, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			api.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

const sqliteURLPrefix = "sqlite:"

func isPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// openStore opens the database. While a PostgreSQL server is unavailable, it retries until the
// second context (starting) is done. Only ctx cancels a migration, which may take longer.
func (c *Config) openStore(ctx, starting context.Context) (store.Store, error) {
	path, isSQLite := strings.CutPrefix(c.DatabaseURL, sqliteURLPrefix)
	if !isSQLite {
		return c.OpenPostgres(ctx, starting, c.DatabaseURL)
	}
	records, err := sqlite.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return records, nil
}
