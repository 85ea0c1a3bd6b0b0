# `make` lists the targets. Building and testing need Go alone; linting installs its own pinned tools in .tools/, and needs npm.

# Those of go.work.
MODULES  := $(shell sed -n 's|^\t\./||p' go.work)
PACKAGES := $(MODULES:%=./%/...)
# What one machine needs comes first: "make run" builds no more than that.
LOCAL    := ./deploy/local/cmd/hookstart-local ./executor/cmd/hookstart
PROGRAMS := $(LOCAL) ./ingress/cmd/ingress ./executor/cmd/executor

# Without git, or without a commit, the version is dev. Stamped here and not by go build, which refuses
# a checkout that belongs to another user.
VERSION := $(shell git describe --always --dirty --match 'v[0-9]*' 2>/dev/null || echo dev)
COMMIT  := $(shell git log -1 --format='%H of %cI' 2>/dev/null || echo unknown)
LDFLAGS := -X github.com/hookstart/hookstart/shared/ops.Version=$(VERSION) -X "github.com/hookstart/hookstart/shared/ops.Commit=$(COMMIT)"
# The compiler spends a quarter of its time on its own garbage otherwise: packages as large as SQLite and NATS.
GO_BUILD := GOGC=$${GOGC:-400} go build -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/

# A package for each core, and four tests of each at once, since tests wait more than they compute. More packages than cores make servers slower than the timeouts of
# their clients. -ldflags=-w leaves out what debuggers read: linking 55 test programs takes a third less. GOGC saves an eighth of the CPU of compiling and testing.
# "make lint" vets.
CORES := $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((cores > 2 ? cores : 2)))
TEST  := GOGC=$${GOGC:-400} go test -vet=off -ldflags=-w -shuffle=on -p $(CORES) -parallel $$(( $(CORES) > 4 ? $(CORES) : 4 ))

FUZZTIME  ?= 30s
DURATION  ?= 10m
RUNNERS   ?= 20000
CUTS      ?= 50
TESTFLAGS ?=

# The folder carries the version, so that a new one is installed when it changes here.
GOLANGCI_LINT := .tools/golangci-lint@v2.15.0/golangci-lint
BUF           := .tools/buf@v1.72.0/buf
PROTOC_GEN_GO := .tools/protoc-gen-go@v1.36.12/protoc-gen-go
NFPM          := .tools/nfpm@v2.45.0/nfpm
HELM          := .tools/helm@v3.22.0/helm
KUSTOMIZE     := .tools/kustomize@v5.7.1/kustomize

# The kit in JavaScript brings its plugin for buf, and its compiler. The example installs the kit as anybody
# does: from the package.
NODE_KIT     := shared/runner/node
NODE_PACKAGE := $(NODE_KIT)/hookstart-runner.tgz
NODE_EXAMPLE := shared/runner/examples/node
NODE_MODULES := $(NODE_KIT)/node_modules/.all-of-them
NODE_EXAMPLE_MODULES := $(NODE_EXAMPLE)/node_modules/.all-of-them
BUF_GENERATE_NODE = cd $(NODE_KIT) && "$(CURDIR)/$(BUF)" generate "$(CURDIR)/proto" --path "$(CURDIR)/proto/hookstart/v1/execution.proto"

# buf finds its plugin on the PATH.
BUF_GENERATE = PATH="$(CURDIR)/$(dir $(PROTOC_GEN_GO)):$$PATH" "$(CURDIR)/$(BUF)" generate

.DEFAULT_GOAL := help
.PHONY: help run build test test-long quick soak soak-runners soak-order soak-waiting soak-answers soak-cancels soak-events failovers partitions regions takeover powercut lint bench tail profile microbench fuzz generate node release dist shipped clean
.PHONY: lint-format lint-imports lint-go lint-modules lint-proto lint-generated lint-node

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# With the compiler's own settings, so that it takes from the build cache what go test and other projects have compiled already.
run: ## build hookstart-local and hookstart, then start everything in one process: make run ARGS="--no-demo"
	$(GO_BUILD) $(LOCAL)
	@exec bin/hookstart-local $(ARGS)

# The compiler optimizes for what "make profile" measured; it compiles every package anew for that.
build: ## build the programs into bin/
	CGO_ENABLED=0 $(GO_BUILD) -trimpath -pgo=deploy/bench/load.pgo $(PROGRAMS)

# The race detector needs a C compiler; runtime/cgo is the smallest package that shows whether there is one that works.
# SQLite's library, which is C in Go, is compiled without the race detector, with which it takes seven times as long, and so is SHA-256, of which each key that signs
# sessions takes 600,000 rounds. Nothing else is: of a package with instances of generic types, the rest would see races that are none.
# A process with the race detector in it waits a second before it ends, unless GORACE says otherwise.
# The tests in WHOLE start installations of many processes, browsers and compilers. They take five times the CPU with the race detector, and their programs
# are the packages that are tested with it here: they run without it, unless RACE=all.
WHOLE  := bench dist e2e powercut release soak
WHOLE  := $(filter $(WHOLE:%=./deploy/%/...) $(WHOLE:%=github.com/hookstart/hookstart/deploy/%) github.com/hookstart/hookstart/deploy/e2e/%,$(PACKAGES))
INSIDE := $(if $(filter all,$(RACE)),$(PACKAGES),$(filter-out $(WHOLE),$(PACKAGES)))
# LONG names the tests that start many programs, kill them under load, or take more than ten seconds for another reason. "make test" skips them; "make test-long" runs them
# and nothing else, so that each test is in one of the two. -skip and -run take the same pattern.
LONG  := TestAGroupIsAddedToARunningCluster TestALostServerIsRemoved TestARunnerFromOutside TestAnExecutionBesideItsList TestAnswersUnderKills TestAuditPage \
	TestBackupOfOwnStreams TestBackupUnderLoad TestCanceledAtRandomMoments TestChangesHoldFromTheNextRequest TestChecksumsAndBills TestConnectSlack TestConsole \
	TestConsoleByKeyboard TestConsoleComesBack TestConsoleKeepsUp TestControlByKeyboard TestControlPages TestDatabaseAway TestDatabaseFailsOver TestDeadLettersGrow TestDenied TestEventsUnderKills \
	TestEveryAttemptWouldBeSeen TestEveryRoleCanDoItsWork TestFirstVerifiedEvents TestFrozenAndLocked TestHandlingByKeyboard TestHandlingPages TestIsolation \
	TestKillUnderLoad TestKilledRunners TestNATSAway TestNodeFollowsItsQueue TestNodeKeepsTheOrder TestNothingThatAProvidersLibraryRefuses \
	TestOrderHoldsWhileRunnersAreKilled TestPowerCuts TestPowerCutsOfThreeServers TestPrepare TestQueueStuck TestQueuesMoveUnderLoad TestReadinessSaysThatTheDatabaseIsAway \
	TestReplicasAreRaisedByACommand TestReplicasOfTheCopy TestRequeueSurvivesAKill TestRestoreElsewhere TestRollingRestart TestRun TestScale TestScreenshots \
	TestSearchKeyChartsAndHours TestSenderByKeyboard TestSenderPages TestSignInThroughAProvider TestSnippetsRun TestTail TestTerminateWhileStarting \
	TestTheSameEverywhere TestThreeHosts TestWhatTheModulesBring
LONG  := ^($(subst $() ,|,$(strip $(LONG))))$$
SKIP  := -skip '$(LONG)'
test: ## run the tests, with the race detector where it is available: make test RACE=all uses it for whole installations too
test-long: ## run the tests that "make test" leaves out: installations that are killed, cut off and upgraded under load
test-long: SKIP := -run '$(LONG)'
test-long: INSIDE := $(filter $(WHOLE),$(INSIDE))
test test-long:
	@race='-race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=crypto/internal/fips140/sha256=-race=false'; \
	go build -race runtime/cgo >/dev/null 2>&1 || { race=; echo 'no C compiler that works: testing without the race detector'; }; \
	export GORACE="$${GORACE-atexit_sleep_ms=0}"; failed=0; \
	$(if $(INSIDE),(set -x; $(TEST) $$race -timeout 40m $(if $(filter all,$(RACE)),$(SKIP)) $(TESTFLAGS) $(INSIDE)) || failed=1;) \
	$(if $(filter-out $(INSIDE),$(WHOLE)),(set -x; $(TEST) -timeout 40m $(SKIP) $(TESTFLAGS) $(filter-out $(INSIDE),$(WHOLE))) || failed=1;) \
	exit $$failed

# Whole installations, browsers, databases and faults are left to "make test".
quick: ## run the tests of the domain, the endpoint, the kits and the command line: under a minute on two cores, without the race detector
	$(TEST) $(TESTFLAGS) $(filter ./shared/% ./executor/client/%,$(PACKAGES)) ./ingress/... ./executor/cmd/... ./executor/internal/operators/operate ./executor/internal/operators/signin

soak: ## real processes under load and faults, then a ledger: make soak DURATION=10m SEED=7 ARGS=--only=lock (ARGS=--own-streams=3: three queues more, each in a stream of its own); AWAY=60s: NATS, PostgreSQL away that long
	$(if $(AWAY),go test -count=1 -v -timeout 15m -run Away ./deploy/soak -away=$(AWAY),\
	CGO_ENABLED=0 go build -o bin/soak ./deploy/soak/cmd/soak && exec bin/soak --duration=$(DURATION) $(if $(SEED),--seed=$(SEED)) $(ARGS))

soak-runners: ## RUNNERS=20000 executions by four runners, of which one is killed every 2 s
	go test -count=1 -v -timeout 30m -run '^TestKilledRunners$$' ./deploy/e2e -runners=$(RUNNERS)

soak-order: ## ORDERED=20000 executions of 500 keys by four runners; one is killed every 2 s, the stream's leader changes, first attempts fail
	go test -count=1 -v -timeout 30m -run '^TestOrderHolds' ./deploy/e2e -ordered=$(or $(ORDERED),20000)

soak-waiting: ## WAITING=9500 requests that wait for their answers at one ingress, and what they cost others; needs twice as many open files
	ulimit -n $$(ulimit -Hn); go test -count=1 -v -timeout 10m -run '^TestManyRequestsWait$$' ./ingress -waiting=$(or $(WAITING),9500)

soak-answers: ## ANSWERS=2000 requests at 100/s whose answers wait for runs of 10 ms to 40 s, while ingresses, executor and runners are killed: RATE=100
	go test -count=1 -v -timeout 30m -run '^TestAnswersUnderKills$$' ./deploy/e2e -answers=$(or $(ANSWERS),2000) -answers-rate=$(or $(RATE),100)

soak-cancels: ## CANCELS=5000 executions canceled at random moments while runners and the executor are killed; then an older database is restored
	go test -count=1 -v -timeout 30m -run '^TestCanceledAtRandomMoments$$' ./deploy/e2e -canceled=$(or $(CANCELS),5000)

soak-events: ## EVENTS=1000 failures that operator events report, while NATS, executor, ingress and runners are killed in turns
	go test -count=1 -v -timeout 30m -run '^TestEventsUnderKills$$' ./deploy/e2e -events=$(or $(EVENTS),1000)

partitions: ## three hosts whose network is broken under load and changes, then a ledger; as root on Linux: make partitions DURATION=10m SEED=7 ARGS=--only=bridge
	CGO_ENABLED=0 go build -o bin/partitions ./deploy/soak/cmd/partitions && exec bin/partitions --duration=$(DURATION) $(if $(SEED),--seed=$(SEED)) $(ARGS)

regions: ## three zones with latency between them: what a 200 costs, and what happens while a zone is cut off; as root on Linux: make regions SEED=7 ARGS=--latencies=30ms
	CGO_ENABLED=0 go build -o bin/regions ./deploy/soak/cmd/regions && exec bin/regions $(if $(SEED),--seed=$(SEED)) $(ARGS)

takeover: ## a site is killed under load, and a second site with a copy takes over, then a ledger; as root on Linux: make takeover SEED=7 ARGS=--rate=500
	CGO_ENABLED=0 $(GO_BUILD) ./executor/cmd/hookstart
	CGO_ENABLED=0 go build -o bin/takeover ./deploy/soak/cmd/takeover && exec bin/takeover $(if $(SEED),--seed=$(SEED)) $(ARGS)

failovers: ## FAILOVERS=30 failovers of PostgreSQL to a standby that lags, at 200 deliveries/s
	go test -count=1 -timeout 0 -v -run '^TestDatabaseFailsOver$$' ./deploy/e2e -failovers $(or $(FAILOVERS),30)

powercut: ## CUTS=50 power cuts of hookstart-local under load, on a FUSE file system that forgets what was not synced; with --sync-always, then without: SEED=7; ARGS=--servers=3: of three NATS servers at the same moment
	CGO_ENABLED=0 go build -o bin/powercut ./deploy/powercut/cmd/powercut && exec bin/powercut --cuts=$(CUTS) $(if $(SEED),--seed=$(SEED)) $(ARGS)

lint: lint-format lint-imports lint-go lint-modules lint-proto lint-generated lint-node ## check style, import rules, modules, generated code and the types of the kit in JavaScript (make -k lint: all findings)

lint-format:
	@unformatted=$$(gofmt -l $(MODULES)) || exit; test -z "$$unformatted" || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; }

# A rule whose glob matches nothing would pass everything.
lint-imports: $(GOLANGCI_LINT)
	.ci/import-rules $(GOLANGCI_LINT)

lint-go: $(GOLANGCI_LINT)
	$(GOLANGCI_LINT) run --allow-parallel-runners $(PACKAGES)

# go.work hides a require that is missing; a user of one module has no go.work.
lint-modules:
	@failed=; for module in $(MODULES); do \
		echo "GOWORK=off: build, vet and tidy $$module"; \
		(cd $$module && export GOWORK=off && go build -buildvcs=false -o /dev/null ./... && go vet ./... && go mod tidy -diff) || failed="$$failed $$module"; \
	done; \
	test -z "$$failed" || { echo "failed on its own:$$failed"; exit 1; }

lint-proto: $(BUF)
	cd proto && "$(CURDIR)/$(BUF)" lint

# Generates into a copy, so that it says the same in a checkout with changes.
lint-generated: $(BUF) $(PROTOC_GEN_GO) $(NODE_MODULES)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	cp -R proto "$$scratch" && find "$$scratch" -name '*.pb.go' -delete && \
	(cd "$$scratch/proto" && $(BUF_GENERATE)) && \
	($(BUF_GENERATE_NODE) --output "$$scratch") && \
	diff -r proto "$$scratch/proto" && diff -r $(NODE_KIT)/gen "$$scratch/gen" || { echo 'generated code is stale: run make generate'; exit 1; }

lint-node: $(NODE_MODULES) $(NODE_EXAMPLE_MODULES)
	cd $(NODE_KIT) && npm run --silent check
	cd $(NODE_EXAMPLE) && node_modules/.bin/tsc

node: $(NODE_EXAMPLE_MODULES) ## pack the kit for runners in Node.js, and install it in its example

bench: build ## speed, against the bare combination of the parts: make bench ROUNDS=12 ARGS="--connections=8"; other measurements: ARGS="--help"
	CGO_ENABLED=0 go build -o bin/bench ./deploy/bench/cmd/bench && exec bin/bench $(ARGS) $(if $(ROUNDS),--rounds=$(ROUNDS))

tail: build ## where the slowest requests wait at a constant rate, by execution traces: make tail ARGS="--rate=5000 --variants=hookstart-local"
	CGO_ENABLED=0 go build -o bin/bench ./deploy/bench/cmd/bench && exec bin/bench tail $(ARGS)

profile: ## measure again where the programs spend their time under load: deploy/bench/load.pgo, for make build
	CGO_ENABLED=0 go build -o bin/bench ./deploy/bench/cmd/bench
	rm -rf bin/profiles
	bin/bench --profile=bin/profiles --rounds=6 --open-rounds=0 --variants=hookstart-recording,hookstart-postgres,hookstart-running,hookstart-local
	cp bin/profiles/merged.pgo deploy/bench/load.pgo

microbench: ## run the Go benchmarks of all packages
	go test -run '^$$' -bench . -benchmem -short $(PACKAGES)

fuzz: ## run every fuzz test for FUZZTIME each: make fuzz FUZZTIME=2m
	.ci/fuzz $(FUZZTIME) $(PACKAGES)

generate: $(BUF) $(PROTOC_GEN_GO) $(NODE_MODULES) ## generate Go, and the kit's JavaScript, from proto/, and the senders' pages
	cd proto && $(BUF_GENERATE)
	$(BUF_GENERATE_NODE)
	go test ./shared/sender -run TestPages -update

# Everything that users install, to the byte the same on every machine with this version of Go. The programs are compiled with
# what is in the cache of modules; only the tools have to be fetched once.
MAKE_DIST = go run -buildvcs=false ./deploy/dist/cmd/dist -nfpm "$(CURDIR)/$(NFPM)" -out "$(CURDIR)/dist" -platforms "$(PLATFORMS)" \
	$(if $(SIGN_WITH),-sign-with "$$(realpath $(SIGN_WITH))") $(VERSION)

# It makes dist/ of the commit that it tags.
release: $(NFPM) ## a release of the commit that is checked out, as a commit beside the branch with a tag for each module, and its files in dist/; pushes nothing: make release VERSION=v0.1.0
	@go run -buildvcs=false ./deploy/release/cmd/release $(VERSION) $(MAKE_DIST)

dist: $(NFPM) ## what is shipped of a release, in dist/: make dist VERSION=v0.1.0 SIGN_WITH=~/.ssh/id_ed25519 PLATFORMS=linux/amd64
	@$(MAKE_DIST)

# Each check that this machine cannot do is skipped with its reason. DIST=dist checks what is there already; else a release is made in
# shipped/, for PLATFORMS=linux/amd64 if all take too long.
shipped: $(NFPM) $(HELM) $(KUSTOMIZE) ## install and run what is shipped: packages in a Debian root, units under systemd, images, compose, chart; as root
	HOOKSTART_PLATFORMS=$(PLATFORMS) HOOKSTART_SHIPPED=$(abspath $(or $(DIST),shipped)) HOOKSTART_NFPM=$(abspath $(NFPM)) HOOKSTART_HELM=$(abspath $(HELM)) HOOKSTART_KUSTOMIZE=$(abspath $(KUSTOMIZE)) \
		go test -count=1 -v -timeout 60m ./deploy/dist $(TESTFLAGS)

clean: ## remove bin/ (the tools in .tools/ and the data in .hookstart/ stay)
	rm -rf bin

$(NODE_MODULES): $(NODE_KIT)/package-lock.json
	npm ci --ignore-scripts --no-audit --no-fund --prefix $(NODE_KIT)
	touch $@

# npm names the package by its version; the example needs a name that stays.
$(NODE_PACKAGE): $(NODE_MODULES) $(wildcard $(NODE_KIT)/*.js $(NODE_KIT)/gen/hookstart/v1/*) $(NODE_KIT)/package.json $(NODE_KIT)/README.md
	rm -f $(NODE_KIT)/*.tgz
	cd $(NODE_KIT) && npm pack --silent
	mv $(NODE_KIT)/hookstart-runner-*.tgz $@

$(NODE_EXAMPLE_MODULES): $(NODE_PACKAGE) $(NODE_EXAMPLE)/package-lock.json
	npm ci --ignore-scripts --no-audit --no-fund --prefix $(NODE_EXAMPLE)
	touch $@

$(GOLANGCI_LINT): tool = github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BUF):           tool = github.com/bufbuild/buf/cmd/buf
$(PROTOC_GEN_GO): tool = google.golang.org/protobuf/cmd/protoc-gen-go
$(NFPM):          tool = github.com/goreleaser/nfpm/v2/cmd/nfpm
$(HELM):          tool = helm.sh/helm/v3/cmd/helm
$(KUSTOMIZE):     tool = sigs.k8s.io/kustomize/kustomize/v5

$(GOLANGCI_LINT) $(BUF) $(PROTOC_GEN_GO) $(NFPM) $(HELM) $(KUSTOMIZE):
	GOBIN="$(CURDIR)/$(@D)" go install $(tool)@$(lastword $(subst @, ,$(@D)))
