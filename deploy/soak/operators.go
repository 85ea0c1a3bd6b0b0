package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/webhook"
)

// changeInterval is the average pause between two changes, and changeRetryDelay the pause before a
// change is retried. changeTimeout is the timeout of a call that changes something. It must exceed
// the longest response time: a call that is abandoned could take effect after the operator's next
// change. checkTimeout is the timeout of one request that checks a change. learnTokenTimeout is how
// long an operator asks executors for the new token of its workflow.
const (
	changeInterval    = 400 * time.Millisecond
	changeRetryDelay  = 300 * time.Millisecond
	changeTimeout     = time.Minute
	checkTimeout      = 5 * time.Second
	learnTokenTimeout = 30 * time.Second
)

// The plans of the operators' accounts: planWithWebhooks includes webhooks, planWithoutWebhooks
// does not.
const (
	planWithWebhooks    = "ultra"
	planWithoutWebhooks = "none"
)

// operatedNodeID is the ID of the trigger node of the workflows that operators change.
const operatedNodeID = "node"

// operators change the registry through random executors. Each operator has a separate account, and
// queries every ingress and every executor after each confirmed change. A service may fail to
// respond, or respond with a 503 for example, but its response must not show the state before the
// change.
type operators struct {
	all              []*operator
	confirmedChanges atomic.Int64 // confirmed changes
	unconfirmedCalls atomic.Int64 // calls whose effect is unknown
	checkCount       atomic.Int64 // queries after a confirmed change
	conclusiveChecks atomic.Int64 // queries whose response contained a state

	logf            func(format string, args ...any)
	mu              sync.Mutex
	contradictions  []string
	confirmedByName map[string]int // number of confirmed changes, by name
}

// operator makes one change after another to its workflow and account, and keeps track of the state
// that all services must show.
type operator struct {
	operators         *operators
	installation      *installation
	senders           *senders
	partition         func() string // describes the current partition
	random            *rand.Rand
	name              string // name of the account and of the workflow
	ingressCheckCount int

	// The state after all confirmed changes, which every service must show.
	exists, active   bool
	plan             string
	token            string
	revokedToken     string     // "" means none
	key              api.NewKey // no ID means no key
	revokedKeySecret string     // "" means none
	lastChange       string     // the last confirmed change, quoted in failure messages
}

// newOperators creates count accounts, each with a workflow, and returns an operator for each of
// them. seed determines their random changes. f provides the description of the current partition,
// which messages about contradictions contain.
func newOperators(
	ctx context.Context, count int, i *installation, s *senders, f *partitioner, seed uint64,
) (*operators, error) {
	all := &operators{logf: f.logf, confirmedByName: map[string]int{}}
	for n := range count {
		o := &operator{
			operators:    all,
			installation: i,
			senders:      s,
			partition:    f.describeLatestPartition,
			name:         fmt.Sprintf("operated-%d", n),
			plan:         planWithWebhooks,
			random:       rand.New(rand.NewPCG(seed, uint64(2+n))), //nolint:gosec // not a secret
		}
		client := i.client()
		if _, err := client.PutAccount(ctx, o.name,
			api.PutAccount{Name: o.name, Plan: planWithWebhooks}); err != nil {
			return nil, err
		}
		if err := o.putWorkflow(ctx, client); err != nil {
			return nil, err
		}
		all.all = append(all.all, o)
	}
	return all, nil
}

// makeChanges lets all operators make and check random changes until the measuring context is done.
func (all *operators) makeChanges(ctx, measuring context.Context) {
	var each sync.WaitGroup
	for _, o := range all.all {
		each.Go(func() {
			for measuring.Err() == nil {
				o.makeRandomChange(ctx)
				retry.Sleep(measuring,
					changeInterval/2+time.Duration(o.random.Int64N(int64(changeInterval))))
			}
		})
	}
	each.Wait()
}

// checkAllStrictly lets each operator check every service again. A response such as a 503, which
// does not show the state of the workflow and account, now counts as a contradiction. Call
// checkAllStrictly only after the network has healed.
func (all *operators) checkAllStrictly(ctx context.Context) {
	for _, o := range all.all {
		o.checkServices(ctx, true)
	}
}

func (all *operators) allContradictions() []string {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Clone(all.contradictions)
}

func (all *operators) writeCounts(out io.Writer) {
	all.mu.Lock()
	defer all.mu.Unlock()
	_, _ = fmt.Fprintf(out,
		"%-14s %8d  confirmed: %s; %d calls were answered that it is not known, or not at all\n",
		"changes", all.confirmedChanges.Load(), formatCounts(all.confirmedByName),
		all.unconfirmedCalls.Load())
	_, _ = fmt.Fprintf(out,
		"%-14s %8d  questions after a confirmed change; %d answered, the others said that they "+
			"do not know\n", "checks", all.checkCount.Load(), all.conclusiveChecks.Load())
}

// possibleChanges returns the changes that are possible in the current state, keyed by name.
func (o *operator) possibleChanges() map[string]func(context.Context, *apiclient.Client) error {
	if !o.exists {
		return map[string]func(context.Context, *apiclient.Client) error{"put": o.putWorkflow}
	}
	changes := map[string]func(context.Context, *apiclient.Client) error{
		"delete":       o.deleteWorkflow,
		"rotate token": o.rotateToken,
	}
	switch {
	case o.active:
		changes["deactivate"] = o.setActive(false)
	case o.plan == planWithWebhooks:
		changes["activate"] = o.setActive(true)
	}
	if o.plan == planWithWebhooks {
		changes["plan "+planWithoutWebhooks] = o.setPlan(planWithoutWebhooks)
	} else {
		changes["plan "+planWithWebhooks] = o.setPlan(planWithWebhooks)
	}
	if o.key.ID == "" {
		changes["make key"] = o.makeKey
	} else {
		changes["revoke key"] = o.revokeKey
	}
	return changes
}

// makeRandomChange chooses a random change, tries random executors until one confirms it, and then
// checks the responses of all services.
func (o *operator) makeRandomChange(ctx context.Context) {
	changes := o.possibleChanges()
	names := slices.Sorted(maps.Keys(changes))
	name := names[o.random.IntN(len(names))]
	if name == "delete" && o.random.IntN(3) > 0 {
		// Skip two of three deletions, because most other changes are impossible without the
		// workflow.
		return
	}
	for {
		e := o.installation.executors[o.random.IntN(len(o.installation.executors))]
		calling, cancel := context.WithTimeout(ctx, changeTimeout)
		err := changes[name](calling, apiclient.New(e.url, adminToken))
		cancel()
		if err == nil {
			o.lastChange = fmt.Sprintf("%s by %s at %s",
				name, e.name, time.Now().Format("15:04:05.000"))
			break
		}
		if problem, ok := errors.AsType[*api.Problem](err); ok && problem.Status < 500 &&
			problem.Status != http.StatusConflict &&
			problem.Status != http.StatusPreconditionFailed &&
			problem.Status != http.StatusTooManyRequests {
			o.addContradiction("%s by %s was refused: %d %s: %s", name, e.name, problem.Status,
				problem.Code, problem.Detail)
		}
		o.operators.unconfirmedCalls.Add(1)
		retry.Sleep(ctx, changeRetryDelay)
		if ctx.Err() != nil {
			return
		}
	}
	o.operators.confirmedChanges.Add(1)
	o.operators.mu.Lock()
	o.operators.confirmedByName[name]++
	o.operators.mu.Unlock()
	o.checkServices(ctx, false)
}

func (o *operator) addContradiction(format string, args ...any) {
	text := fmt.Sprintf("%s, %s, %s: ", time.Now().Format("15:04:05.000"), o.partition(), o.name) +
		fmt.Sprintf(format, args...)
	o.operators.mu.Lock()
	defer o.operators.mu.Unlock()
	o.operators.contradictions = append(o.operators.contradictions, text)
	o.operators.logf("contradiction: %s", text)
}

func (o *operator) putWorkflow(ctx context.Context, client *apiclient.Client) error {
	if _, err := client.PutWorkflow(ctx, o.name, api.PutWorkflow{
		AccountID: o.name,
		Name:      o.name,
		RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
		Triggers:  []api.PutTrigger{{NodeID: operatedNodeID}},
	}); err != nil {
		return err
	}
	t, err := client.Trigger(ctx, o.name, operatedNodeID)
	if err != nil {
		return err
	}
	o.exists, o.active = true, false
	if t.Token == "" || t.Token == o.revokedToken {
		o.addContradiction("a new workflow has %s", describeToken(t.Token, o))
		return o.learnToken(ctx)
	}
	o.token = t.Token
	return nil
}

func (o *operator) deleteWorkflow(ctx context.Context, client *apiclient.Client) error {
	err := client.DeleteWorkflow(ctx, o.name)
	if problem, ok := errors.AsType[*api.Problem](err); ok &&
		problem.Status == http.StatusNotFound {
		// The executor responds that the workflow does not exist, so an earlier attempt to delete
		// it has probably taken effect without a confirmation. If the executor is wrong and the
		// workflow still exists, the checks after this change report a contradiction.
		err = nil
	}
	if err == nil {
		o.exists, o.active, o.revokedToken = false, false, o.token
	}
	return err
}

func (o *operator) setActive(active bool) func(context.Context, *apiclient.Client) error {
	return func(ctx context.Context, client *apiclient.Client) error {
		change := client.Deactivate
		if active {
			change = client.Activate
		}
		w, err := change(ctx, o.name)
		if err != nil {
			return err
		}
		if w.Active != active {
			o.addContradiction("active was to be %v; the answer of 200 says %v", active, w.Active)
		}
		o.active = active
		return nil
	}
}

func (o *operator) setPlan(plan string) func(context.Context, *apiclient.Client) error {
	return func(ctx context.Context, client *apiclient.Client) error {
		a, err := client.PutAccount(ctx, o.name, api.PutAccount{Name: o.name, Plan: plan})
		if err != nil {
			return err
		}
		if a.Plan != plan {
			o.addContradiction("the plan was to be %s; the answer of 200 says %s", plan, a.Plan)
		}
		o.plan = plan
		return nil
	}
}

func (o *operator) rotateToken(ctx context.Context, client *apiclient.Client) error {
	t, err := client.RotateToken(ctx, o.name, operatedNodeID, 0)
	if err != nil {
		return err
	}
	if t.Token == "" || t.Token == o.token || t.Token == o.revokedToken {
		o.addContradiction("a rotation was answered 200 with %s", describeToken(t.Token, o))
		return o.learnToken(ctx)
	}
	o.revokedToken, o.token = o.token, t.Token
	return nil
}

// learnToken asks random executors for the operator's trigger, until one of them returns a token
// that is neither the current token nor the revoked one. This token becomes the current one: from
// now on, the operator expects it from every service.
func (o *operator) learnToken(ctx context.Context) error {
	return eventually(ctx, learnTokenTimeout, func(ctx context.Context) error {
		e := o.installation.executors[o.random.IntN(len(o.installation.executors))]
		t, err := apiclient.New(e.url, adminToken).Trigger(ctx, o.name, operatedNodeID)
		switch {
		case err != nil:
			return err
		case t.Token == "" || t.Token == o.token || t.Token == o.revokedToken:
			return errors.New("there is no new token")
		}
		o.revokedToken, o.token = o.token, t.Token
		return nil
	})
}

// describeToken says whether a token is one that the operator knows, without disclosing it.
func describeToken(token string, o *operator) string {
	switch token {
	case "":
		return "no token"
	case o.token:
		return "the token of before"
	case o.revokedToken:
		return "the token before the one of before"
	default:
		return "a new token"
	}
}

func (o *operator) makeKey(ctx context.Context, client *apiclient.Client) error {
	key, err := client.CreateKey(ctx, api.PutKey{Name: o.name, Role: "viewer", AccountID: o.name})
	if err == nil {
		o.key = key
	}
	return err
}

func (o *operator) revokeKey(ctx context.Context, client *apiclient.Client) error {
	err := client.RevokeKey(ctx, o.key.ID)
	if problem, ok := errors.AsType[*api.Problem](err); ok &&
		problem.Status == http.StatusNotFound {
		err = nil
	}
	if err == nil {
		o.revokedKeySecret, o.key = o.key.Secret, api.NewKey{}
	}
	return err
}

// checkServices checks that every ingress and every executor shows the state after the operator's
// last confirmed change. If strict is true, a response that does not reveal the state, such as a
// 503, is a contradiction as well.
func (o *operator) checkServices(ctx context.Context, strict bool) {
	var all sync.WaitGroup
	for _, e := range o.installation.ingresses {
		o.ingressCheckCount++
		number := o.ingressCheckCount
		all.Go(func() { o.checkIngress(ctx, e, number, strict) })
	}
	for _, e := range o.installation.executors {
		all.Go(func() { o.checkExecutor(ctx, e, strict) })
	}
	all.Wait()
}

// wantIngressResponse returns the response that an ingress must give to a request with the newest
// token: an error code or "200".
func (o *operator) wantIngressResponse() string {
	switch {
	case !o.exists:
		return string(webhook.CodeWorkflowNotFound)
	case o.plan != planWithWebhooks:
		return string(webhook.CodeWebhooksNotInPlan)
	case !o.active:
		return string(webhook.CodeWorkflowInactive)
	default:
		return "200"
	}
}

func (o *operator) checkIngress(ctx context.Context, e *service, number int, strict bool) {
	o.checkTokenAtIngress(ctx, e, "newest", o.token, o.wantIngressResponse(), number, strict)
	if o.revokedToken == "" || o.revokedToken == o.token {
		return
	}
	want := string(webhook.CodeTokenInvalid)
	if !o.exists {
		want = string(webhook.CodeWorkflowNotFound)
	}
	o.checkTokenAtIngress(ctx, e, "revoked", o.revokedToken, want, number, strict)
}

// checkTokenAtIngress sends a request with a token to one ingress. want is the expected response:
// an error code or "200". checkTokenAtIngress records a contradiction if the response is different.
// If strict is false, a 429, a 5xx and a missing response are allowed. name describes the token in
// messages, and number makes the request's marker unique.
func (o *operator) checkTokenAtIngress(
	ctx context.Context, e *service, name, token, want string, number int, strict bool,
) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	asked := time.Now()
	d := o.senders.ledger.addDelivery(
		fmt.Sprintf("%s-%s-%s-%d-%s", o.senders.runID, o.name, name, number,
			e.name),
		false,
	)
	a, _ := o.senders.sendAndRecord(ctx, d, "/webhooks/"+o.name+"?token="+token, e.url)
	got := a.Code
	if a.Status == http.StatusOK {
		got = "200"
	}
	o.operators.checkCount.Add(1)
	unknown := a.Status == 0 || a.Status >= http.StatusInternalServerError ||
		a.Status == http.StatusTooManyRequests
	if !unknown {
		o.operators.conclusiveChecks.Add(1)
	}
	if got != want && (!unknown || strict) {
		o.addContradiction(
			"%s answered %d %s to the %s token, not %s (asked at %s; confirmed before: %s)",
			e.name,
			a.Status,
			a.Code,
			name,
			want,
			asked.Format("15:04:05.000"),
			o.lastChange,
		)
	}
}

func (o *operator) checkExecutor(ctx context.Context, e *service, strict bool) {
	client := apiclient.New(e.url, adminToken)
	o.checkExecutorResponse(ctx, e, strict, "the workflow", o.wantWorkflowResponse(),
		func(ctx context.Context) (string, error) {
			w, err := client.Workflow(ctx, o.name)
			return fmt.Sprintf("active %v", w.Active), err
		})
	o.checkExecutorResponse(ctx, e, strict, "the account", "plan "+o.plan,
		func(ctx context.Context) (string, error) {
			a, err := client.Account(ctx, o.name)
			return "plan " + a.Plan, err
		})
	if o.exists {
		o.checkExecutorResponse(ctx, e, strict, "the token", "the newest",
			func(ctx context.Context) (string, error) {
				t, err := client.Trigger(ctx, o.name, operatedNodeID)
				switch t.Token {
				case o.token:
					return "the newest", err
				case "":
					return "none", err
				default:
					return "another one", err
				}
			})
	}
	whoAmI := func(key string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			_, err := apiclient.New(e.url, key).WhoAmI(ctx)
			return "valid", err
		}
	}
	if o.key.ID != "" {
		o.checkExecutorResponse(ctx, e, strict, "the key", "valid", whoAmI(o.key.Secret))
	}
	if o.revokedKeySecret != "" {
		o.checkExecutorResponse(
			ctx,
			e,
			strict,
			"the revoked key",
			"401",
			whoAmI(o.revokedKeySecret),
		)
	}
}

func (o *operator) wantWorkflowResponse() string {
	if !o.exists {
		return "404"
	}
	return fmt.Sprintf("active %v", o.active)
}

// checkExecutorResponse runs call, which queries an executor, and records a contradiction if the
// result differs from want. The result is a description of the state or, if the API returned an
// error, its HTTP status. If strict is false, 5xx and connection errors are allowed. what names the
// queried object in messages.
func (o *operator) checkExecutorResponse(
	ctx context.Context, e *service, strict bool, what, want string,
	call func(context.Context) (string, error),
) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	asked := time.Now()
	got, err := call(ctx)
	unknown := false
	if problem, ok := errors.AsType[*api.Problem](err); ok {
		got, unknown = fmt.Sprint(problem.Status), problem.Status >= http.StatusInternalServerError
	} else if err != nil {
		got, unknown = strings.ReplaceAll(err.Error(), "\n", " "), true
	}
	o.operators.checkCount.Add(1)
	if !unknown {
		o.operators.conclusiveChecks.Add(1)
	}
	if got != want && (!unknown || strict) {
		o.addContradiction(
			"%s said of %s: %s, not %s (asked at %s; confirmed before: %s)",
			e.name,
			what,
			got,
			want,
			asked.Format("15:04:05.000"),
			o.lastChange,
		)
	}
}
