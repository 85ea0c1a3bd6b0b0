package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
)

// ErrNotFound means that there is no such account, workflow or trigger node. The error that
// says so is a *NotFoundError.
var ErrNotFound = errors.New("not found")

// NotFoundError says what there is not.
type NotFoundError struct {
	What string // for people: workflow "orders"
}

func (e *NotFoundError) Error() string { return e.What + ": " + ErrNotFound.Error() }

// Is makes it an ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

func noWorkflow(id string) error { return &NotFoundError{fmt.Sprintf("workflow %q", id)} }

// ErrPlanLimit means that the account's plan lets no further workflow be active.
var ErrPlanLimit = errors.New("the plan's number of active webhook workflows is reached")

// ErrNotInPlan means that the account's plan has no webhook triggers.
var ErrNotInPlan = errors.New("the plan has no webhook triggers")

// ErrTooManyTokens means that so many old tokens of a node still work that no new one
// is made.
var ErrTooManyTokens = errors.New("too many old tokens still work")

// ErrNoSample means that a node has no sample payload.
var ErrNoSample = errors.New("no sample payload is configured")

// InvalidError says what is wrong with what somebody asked for.
type InvalidError struct {
	Field   string // in the form of the operators' API: triggers[0].nodeId
	Problem string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Problem }

// Limits on what a record may hold; a record is one NATS message.
const (
	MaxTriggers      = 100
	MaxNameLength    = 200 // characters of a name for people
	MaxTokens        = 10  // of one node, old ones that still work included
	MaxKeepOld       = 30 * 24 * time.Hour
	MaxSamplePayload = 512 << 10
)

// Editor changes the registry. It is safe for concurrent use, also by several
// processes: an update names the revision that it is based on, and is tried again
// when somebody else was faster. A method that has returned without an error is in
// force at every process that lives, from the very next request. After an error
// the change may be stored or not; all methods but Rotate can simply be called again.
type Editor struct {
	registry  jetstream.KeyValue
	secrets   jetstream.KeyValue
	directory *Directory
	follower  *Follower // fills directory
	lease     *Lease    // of follower
	roll      *Roll
	now       func() time.Time
}

// NewEditor works on the buckets, which must exist. directory is what follower
// fills, and lease is follower's.
func NewEditor(ctx context.Context, js jetstream.JetStream, directory *Directory, follower *Follower, lease *Lease, roll *Roll) (*Editor, error) {
	var registry, secrets jetstream.KeyValue
	for _, bucket := range []struct {
		name string
		kv   *jetstream.KeyValue
	}{{Bucket, &registry}, {SecretsBucket, &secrets}} {
		if err := ask(ctx, func(ctx context.Context) (err error) {
			*bucket.kv, err = js.KeyValue(ctx, bucket.name)
			return err
		}); err != nil {
			return nil, fmt.Errorf("bucket %s: %w", bucket.name, err)
		}
	}
	now := func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
	return &Editor{registry: registry, secrets: secrets, directory: directory, follower: follower, lease: lease, roll: roll, now: now}, nil
}

// errRetry says that somebody else was faster and the change must be made anew.
var errRetry = errors.New("the record has changed meanwhile")

// errUnchanged says that there is nothing to write: all is as asked for.
var errUnchanged = errors.New("nothing changes")

// Current makes sure that the directory holds every change that was confirmed before the
// call. That costs nothing while the lease holds; else it asks NATS. It fails when it cannot
// know.
func (e *Editor) Current(ctx context.Context) error {
	if e.lease.Holds(time.Now()) {
		return nil
	}
	return e.follower.CatchUp(ctx)
}

// change calls try until it has written, or has said twice what the registry does not let
// it write, the second time after the directory was surely up to date: a process that was
// frozen, or cut from NATS, may know an old registry. try returns the revision that must be
// in force, also with errUnchanged.
func (e *Editor) change(ctx context.Context, try func() (revision uint64, err error)) error {
	for attempt, caughtUp := 0, false; ; attempt++ {
		before := e.follower.Revision()
		revision, err := try()
		switch {
		case err == nil && revision <= before:
			return fmt.Errorf("%w: what was stored has revision %d, and %d was there before", ErrNotCurrent, revision, before)
		case err == nil, caughtUp && errors.Is(err, errUnchanged):
			return e.confirm(ctx, revision)
		case errors.Is(err, errRetry):
		case caughtUp || !isVerdict(err):
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
		if err := e.follower.CatchUp(ctx); err != nil {
			return err
		}
		caughtUp = true
	}
}

// isVerdict says whether an error is a conclusion from what the directory holds.
func isVerdict(err error) bool {
	var invalid *InvalidError
	return errors.As(err, &invalid) || errors.Is(err, errUnchanged) || errors.Is(err, ErrNotFound) ||
		errors.Is(err, ErrPlanLimit) || errors.Is(err, ErrNotInPlan) || errors.Is(err, ErrTooManyTokens)
}

// confirm waits until a revision is in force here and everywhere.
func (e *Editor) confirm(ctx context.Context, revision uint64) error {
	if err := e.follower.Wait(ctx, revision); err != nil {
		return err
	}
	return e.roll.Wait(ctx, revision)
}

// put stores a record over the revision that it was made from; 0: it is new.
func (e *Editor) put(ctx context.Context, kv jetstream.KeyValue, key string, record proto.Message, revision uint64) (uint64, error) {
	data, err := proto.Marshal(record)
	if err != nil {
		return 0, fmt.Errorf("encode %s: %w", key, err)
	}
	var stored uint64
	if revision == 0 {
		// Create also follows a deletion, which Update with revision 0 would not.
		stored, err = kv.Create(ctx, key, data)
	} else {
		stored, err = kv.Update(ctx, key, data, revision)
	}
	return stored, conflict(err, key)
}

// conflict turns the server's "wrong last sequence" into errRetry. A bucket with
// replicas says it with a code of its own.
func conflict(err error, key string) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrKeyExists),
		errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
			api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
		return errRetry
	default:
		return fmt.Errorf("store %s: %w", key, err)
	}
}

// PutPlans puts the plan catalog in force.
func (e *Editor) PutPlans(ctx context.Context, catalog *hookstartv1.PlanCatalog) error {
	return e.change(ctx, func() (uint64, error) {
		have := e.directory.Plans()
		if have.Record != nil && proto.Equal(have.Record, catalog) {
			return have.Revision, errUnchanged
		}
		return e.put(ctx, e.registry, plansKey, catalog, have.Revision)
	})
}

// PutAccount creates an account or replaces it, and says whether it is new. A change
// of plan is in force when it returns.
func (e *Editor) PutAccount(ctx context.Context, id, name, plan string) (a *hookstartv1.Account, created bool, err error) {
	if err := errors.Join(checkID("id", id), checkText("name", name)); err != nil {
		return nil, false, err
	}
	err = e.change(ctx, func() (uint64, error) {
		if !e.knowsPlan(plan) {
			return 0, &InvalidError{"plan", fmt.Sprintf("there is no plan %q", plan)}
		}
		have, exists := e.directory.Account(id)
		created = !exists
		if exists {
			a = proto.CloneOf(have.Record)
		} else {
			a = &hookstartv1.Account{Id: id, CreatedAt: timestamppb.New(e.now())}
		}
		a.Name, a.Plan = name, plan
		if exists && proto.Equal(a, have.Record) {
			return have.Revision, errUnchanged
		}
		return e.put(ctx, e.registry, accountPrefix+id, a, have.Revision)
	})
	return a, created, err
}

func (e *Editor) knowsPlan(id string) bool {
	for _, p := range e.directory.Plans().Record.GetPlans() {
		if p.GetId() == id {
			return true
		}
	}
	return false
}

// WorkflowSpec is what an operator says of a workflow.
type WorkflowSpec struct {
	ID        string
	AccountID string
	Name      string
	Queue     string     // "": the default queue
	RateLimit *RateLimit // nil: the plan's
	Triggers  []TriggerSpec
}

// TriggerSpec is what an operator says of a trigger node.
type TriggerSpec struct {
	NodeID        string
	Name          string
	SamplePayload []byte // one JSON text; nil: leave it as it is
}

func (s *WorkflowSpec) check() error {
	if s.Queue == "" {
		s.Queue = execution.DefaultQueue
	}
	problems := []error{
		checkID("id", s.ID), checkID("accountId", s.AccountID), checkID("queue", s.Queue), checkText("name", s.Name),
	}
	if s.RateLimit != nil {
		if err := checkRateLimit(s.rateLimitRecord()); err != nil {
			problems = append(problems, &InvalidError{"rateLimit", err.Error()})
		}
	}
	if n := len(s.Triggers); n < 1 || n > MaxTriggers {
		problems = append(problems, &InvalidError{"triggers", fmt.Sprintf("a workflow has 1 to %d webhook trigger nodes, not %d", MaxTriggers, n)})
	}
	seen := map[string]bool{}
	for i, t := range s.Triggers {
		at := func(field string) string { return fmt.Sprintf("triggers[%d].%s", i, field) }
		problems = append(problems, checkID(at("nodeId"), t.NodeID), checkText(at("name"), t.Name))
		if seen[t.NodeID] {
			problems = append(problems, &InvalidError{at("nodeId"), fmt.Sprintf("%q is there twice", t.NodeID)})
		}
		seen[t.NodeID] = true
		if t.SamplePayload != nil {
			problems = append(problems, checkSample(at("samplePayload"), t.SamplePayload))
		}
	}
	return errors.Join(problems...)
}

func (s *WorkflowSpec) rateLimitRecord() *hookstartv1.RateLimit {
	if s.RateLimit == nil {
		return nil
	}
	return &hookstartv1.RateLimit{Requests: s.RateLimit.Requests, WindowSeconds: int64(s.RateLimit.Window / time.Second)}
}

func checkID(field, id string) error {
	if !execution.ValidName(id) {
		return &InvalidError{field, "must be 1 to 64 of the characters A-Z a-z 0-9 _ -"}
	}
	return nil
}

func checkText(field, text string) error {
	if n := len([]rune(text)); n > MaxNameLength {
		return &InvalidError{field, fmt.Sprintf("must be at most %d characters, not %d", MaxNameLength, n)}
	}
	return nil
}

func checkSample(field string, sample []byte) error {
	switch {
	case len(sample) > MaxSamplePayload:
		return &InvalidError{field, fmt.Sprintf("must be at most %d bytes, not %d", MaxSamplePayload, len(sample))}
	case !execution.ValidJSON(sample):
		return &InvalidError{field, "must be one JSON text"}
	}
	return nil
}

// PutWorkflow creates a workflow, inactive, or replaces one, and says whether it is
// new. A node that stays keeps its tokens, and its sample payload if none is given;
// a node that is new gets a token.
func (e *Editor) PutWorkflow(ctx context.Context, spec WorkflowSpec) (w *hookstartv1.Workflow, created bool, err error) {
	if err := spec.check(); err != nil {
		return nil, false, err
	}
	var dropped []string
	err = e.change(ctx, func() (uint64, error) {
		var added []secretsOf
		account, exists := e.directory.Account(spec.AccountID)
		if !exists {
			return 0, &InvalidError{"accountId", fmt.Sprintf("there is no account %q; create it first", spec.AccountID)}
		}
		have, exists := e.directory.Workflow(spec.ID)
		created = !exists
		if exists {
			w = proto.CloneOf(have.Record)
		} else {
			w = &hookstartv1.Workflow{Id: spec.ID, CreatedAt: timestamppb.New(e.now())}
		}
		if w.GetAccountId() != spec.AccountID {
			if w.GetActive() {
				return 0, &InvalidError{"accountId", fmt.Sprintf("the workflow is active in account %q; deactivate it before it moves", w.GetAccountId())}
			}
			// Transitions are counted by account: none of this one's so far is about this workflow.
			w.AccountId = spec.AccountID
			w.Transition = account.Record.GetLastTransition().GetNumber()
		}
		w.Name, w.Queue, w.RateLimit = spec.Name, spec.Queue, spec.rateLimitRecord()
		if added, err = e.mergeTriggers(ctx, w, spec.Triggers); err != nil {
			return 0, err
		}
		if exists && proto.Equal(w, have.Record) {
			return have.Revision, errUnchanged
		}
		dropped = droppedNodes(have.Record, w)
		w.UpdatedAt = timestamppb.New(e.now())
		revision, err := e.put(ctx, e.registry, workflowPrefix+spec.ID, w, have.Revision)
		if err != nil {
			return 0, err
		}
		return revision, e.secure(ctx, spec.ID, added)
	})
	return w, created, e.forget(ctx, spec.ID, dropped, err)
}

// mergeTriggers gives w the nodes of specs, with the tokens that they have or new ones. It
// returns the secrets of those that are new.
func (e *Editor) mergeTriggers(ctx context.Context, w *hookstartv1.Workflow, specs []TriggerSpec) (added []secretsOf, err error) {
	nodes := make([]*hookstartv1.TriggerNode, 0, len(specs))
	for _, spec := range specs {
		node := triggerNode(w, spec.NodeID)
		if node == nil {
			// The token is stored first: a hash whose token nobody knows would be of no use.
			token, err := e.addToken(ctx, w.GetId(), spec.NodeID, nil)
			if err != nil {
				return nil, err
			}
			node = &hookstartv1.TriggerNode{NodeId: spec.NodeID, Tokens: []*hookstartv1.TokenHash{hashRecord(token)}}
			added = append(added, secretsOf{spec.NodeID, token, spec.SamplePayload})
		}
		if spec.SamplePayload != nil {
			if err := e.storeSample(ctx, w.GetId(), spec.NodeID, spec.SamplePayload); err != nil {
				return nil, err
			}
		}
		node.Name = spec.Name
		nodes = append(nodes, node)
	}
	w.Triggers = nodes
	return added, nil
}

func triggerNode(w *hookstartv1.Workflow, nodeID string) *hookstartv1.TriggerNode {
	for _, node := range w.GetTriggers() {
		if node.GetNodeId() == nodeID {
			return node
		}
	}
	return nil
}

func droppedNodes(before, after *hookstartv1.Workflow) []string {
	var dropped []string
	for _, node := range before.GetTriggers() {
		if triggerNode(after, node.GetNodeId()) == nil {
			dropped = append(dropped, node.GetNodeId())
		}
	}
	return dropped
}

// DeleteWorkflow deletes a workflow and its secrets.
func (e *Editor) DeleteWorkflow(ctx context.Context, id string) error {
	var nodes []string
	err := e.change(ctx, func() (uint64, error) {
		have, exists := e.directory.Workflow(id)
		if !exists {
			return 0, noWorkflow(id)
		}
		nodes = droppedNodes(have.Record, nil)
		if err := e.registry.Delete(ctx, workflowPrefix+id, jetstream.LastRevision(have.Revision)); err != nil {
			return 0, conflict(err, workflowPrefix+id)
		}
		// KV deletion does not say its revision, but it is not above the bucket's newest.
		status, err := e.registry.Status(ctx)
		if err != nil {
			return 0, fmt.Errorf("delete workflow %q: %w", id, err)
		}
		return lastRevision(status), nil
	})
	return e.forget(ctx, id, nodes, err)
}

func lastRevision(status jetstream.KeyValueStatus) uint64 {
	if s, ok := status.(*jetstream.KeyValueBucketStatus); ok {
		return s.StreamInfo().State.LastSeq
	}
	return 0
}
