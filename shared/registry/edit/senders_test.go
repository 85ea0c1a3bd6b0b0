package edit_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/sender"
)

func keysOf(t *testing.T, lines ...string) *seal.Keys {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	fatal(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	keys, err := seal.ReadKeyFile(path)
	fatal(t, err)
	return keys
}

// opens signs one request with each of the given secrets. It returns the secrets whose requests the
// sender of workflow wf accepts at the ingress, or nil if wf has no sender.
func opens(t *testing.T, i *registrytest.Ingress, secrets ...string) (verified []string) {
	t.Helper()
	view, ok := i.Lookup("wf")
	if !ok {
		t.Fatal("there is no workflow")
	}
	node := view.Workflow.Nodes[0]
	if node.Sender == nil {
		return nil
	}
	for _, secret := range secrets {
		request := sender.Request{Method: "POST", Body: []byte(`{"a":1}`)}
		signed, err := sender.Sign(sender.Config{
			Preset:  "github",
			Secrets: []sender.Secret{{Text: secret}},
		}, request, time.Now())
		fatal(t, err)
		request.Header = signed.Header
		if node.Sender.Verify(&request, time.Now()).OK() {
			verified = append(verified, secret)
		}
	}
	return verified
}

const first, second, third = "the-first-secret", "the-second-secret", "the-third-secret"

func TestSenders(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	keys := keysOf(t, seal.NewKeyLine())
	r := registrytest.StartWithKeys(t, server.Connect(t), keys)
	one, _ := registrytest.StartIngressWithKeys(t, server.Connect(t), keys)
	ctx := t.Context()
	token := r.CreateWorkflow(t, "wf", "free", true)
	if info, err := r.Sender(ctx, "wf", "node"); info != nil || err != nil {
		t.Fatalf("%+v, %v", info, err)
	}
	put := func(spec edit.SenderSpec) (*edit.SenderInfo, bool, error) {
		return r.PutSender(ctx, "wf", "node", spec)
	}

	info, created, err := put(edit.SenderSpec{Preset: "github", Secrets: []string{first}})
	if err != nil || !created || len(info.Secrets) != 1 || info.Secrets[0].Last4 != "cret" ||
		info.Secrets[0].ID == "" {
		t.Fatalf("%+v, %t, %v", info, created, err)
	}
	if got := fmt.Sprint(opens(t, one, first, second)); got != "[the-first-secret]" {
		t.Errorf("after PUT: %s", got)
	}
	again, created, err := put(edit.SenderSpec{Preset: "github", Secrets: []string{first}})
	if err != nil || created || again.Secrets[0].ID != info.Secrets[0].ID {
		t.Errorf("PUT is not idempotent: %+v, %t, %v", again, created, err)
	}
	if _, _, err := r.PutWorkflow(ctx, edit.WorkflowSpec{
		ID:        "wf",
		AccountID: "on-free",
		Name:      "other",
		Triggers:  []edit.TriggerSpec{{NodeID: "node"}},
	}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(opens(t, one, first)); got != "[the-first-secret]" ||
		r.Token(t, "wf", "node") != token {
		t.Errorf("after a PUT of the workflow: %s", got)
	}

	hour := time.Hour
	info, err = r.AddSenderSecret(ctx, "wf", "node", second, &hour)
	if err != nil || len(info.Secrets) != 2 || !info.Secrets[0].ExpiresAt.IsZero() ||
		time.Until(info.Secrets[1].ExpiresAt) > hour {
		t.Fatalf("%+v, %v", info, err)
	}
	if got := fmt.Sprint(opens(t, one, first, second)); got != "[the-first-secret "+
		"the-second-secret]" {
		t.Errorf("after rotation: %s", got)
	}
	if _, err := r.AddSenderSecret(ctx, "wf", "node", third, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.AddSenderSecret(ctx, "wf", "node", "the-fourth-secret", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.AddSenderSecret(ctx, "wf", "node", "the-fifth-secret", nil); !errors.Is(err,
		edit.ErrTooManySecrets) {
		t.Errorf("a fifth: %v", err)
	}
	atOnce := time.Duration(0)
	if info, err = r.AddSenderSecret(ctx, "wf", "node", third, &atOnce); err != nil ||
		len(info.Secrets) != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	if got := fmt.Sprint(opens(t, one, first, second, third)); got != "[the-third-secret]" {
		t.Errorf("after the others were ended: %s", got)
	}
	if err := r.RemoveSenderSecret(ctx, "wf", "node", info.Secrets[0].ID); !errors.Is(err,
		edit.ErrLastSecret) {
		t.Errorf("the last one: %v", err)
	}
	if err := r.RemoveSenderSecret(ctx, "wf", "node", "nothing"); !errors.Is(err,
		edit.ErrNotFound) {
		t.Errorf("none such: %v", err)
	}
	if info, _, err = put(edit.SenderSpec{Preset: "github"}); err != nil || len(info.Secrets) != 1 {
		t.Errorf("without secrets those that are there stay: %+v, %v", info, err)
	}

	fatal(t, r.RemoveSender(ctx, "wf", "node"))
	if view, _ := one.Lookup("wf"); view.Workflow.Nodes[0].Sender != nil {
		t.Error("it is still there")
	}
	if err := r.RemoveSender(ctx, "wf", "node"); !errors.Is(err, edit.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
}

// An operator who may change a sender does not necessarily know its secrets, and must not be able
// to learn them by changing the preset.
func TestAnotherPresetShowsNoSecret(t *testing.T) {
	t.Parallel()
	r := registrytest.StartWithKeys(t, natstest.Start(t).Connect(t), keysOf(t, seal.NewKeyLine()))
	r.CreateWorkflow(t, "wf", "free", true)
	put := func(spec edit.SenderSpec) error {
		_, _, err := r.PutSender(t.Context(), "wf", "node", spec)
		return err
	}
	fatal(t, put(edit.SenderSpec{Preset: "github", Secrets: []string{first}}))
	var invalid *edit.InvalidFieldError
	if err := put(edit.SenderSpec{Preset: "msgraph"}); !errors.As(err, &invalid) ||
		invalid.Field != "secrets" {
		t.Errorf("a secret of GitHub's in the bodies of Graph: %v", err)
	}
	if err := put(edit.SenderSpec{
		Preset:   "header",
		Settings: map[string]string{"header": "X-GitHub-Delivery"},
	}); !errors.As(err, &invalid) {
		t.Errorf("a secret of GitHub's as a delivery ID: %v", err)
	}
	fatal(t, put(edit.SenderSpec{
		Preset:   "hmac",
		Settings: map[string]string{"header": "X-Signature"},
	}))
	fatal(t, put(edit.SenderSpec{Preset: "msgraph", Secrets: []string{second}}))
	fatal(t, put(edit.SenderSpec{
		Preset:   "msgraph",
		Settings: map[string]string{"deliveryId": "ptr:/value/0/id"},
	}))
}

// Order keys and filters are shown to operators. So an order key or a filter that uses a header
// with the sender's secret is refused, and so is a sender whose secret would be in a header that an
// existing order key or filter uses. A header with a signature may be used, because a signature is
// not secret.
func TestNoOrderKeyOrFilterShowsASecret(t *testing.T) {
	t.Parallel()
	r := registrytest.StartWithKeys(t, natstest.Start(t).Connect(t), keysOf(t, seal.NewKeyLine()))
	r.CreateWorkflow(t, "wf", "free", true)
	set := func(s edit.TriggerSettings) error {
		_, err := r.ChangeWorkflow(t.Context(), "wf", func(spec *edit.WorkflowSpec) error {
			spec.Triggers[0].TriggerSettings = s
			return nil
		})
		return err
	}
	put := func(preset string) error {
		_, _, err := r.PutSender(t.Context(), "wf", "node", edit.SenderSpec{
			Preset: preset, Secrets: []string{first},
			Settings: map[string]string{"header": "X-Api-Key"},
		})
		return err
	}
	key := edit.TriggerSettings{OrderKey: "header:x-api-key"}
	condition := edit.TriggerSettings{Filter: []byte(`{"header:X-API-Key":{"$prefix":"a"}}`)}
	for field, settings := range map[string]edit.TriggerSettings{
		"triggers[0].orderKey": key, "triggers[0].filter": condition,
	} {
		fatal(t, set(settings))
		var invalid *edit.InvalidFieldError
		if err := put("header"); !errors.As(err, &invalid) || invalid.Field != "settings.header" ||
			!strings.Contains(invalid.Problem, "X-Api-Key") {
			t.Errorf("a sender after the %s: %v", field, err)
		}
		fatal(t, put("hmac"))
		fatal(t, set(edit.TriggerSettings{OrderKey: "header:X-Tenant"}))
		fatal(t, put("header"))
		if err := set(settings); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("the %s after a sender: %v", field, err)
		}
		fatal(t, r.RemoveSender(t.Context(), "wf", "node"))
	}
}

func TestSendersThatCannotWork(t *testing.T) {
	t.Parallel()
	r := registrytest.StartWithKeys(t, natstest.Start(t).Connect(t), keysOf(t, seal.NewKeyLine()))
	r.CreateWorkflow(t, "wf", "free", true)
	for name, spec := range map[string]edit.SenderSpec{
		"no preset":       {},
		"no such preset":  {Preset: "nobody"},
		"no secret":       {Preset: "github"},
		"empty secrets":   {Preset: "github", Secrets: []string{}},
		"an empty secret": {Preset: "github", Secrets: []string{""}},
		"no such setting": {
			Preset:   "github",
			Secrets:  []string{first},
			Settings: map[string]string{"what": "x"},
		},
		"undecodable": {
			Preset:   "hmac",
			Secrets:  []string{"not hex"},
			Settings: map[string]string{"header": "X-S", "key": "hex"},
		},
		"no header":           {Preset: "hmac", Secrets: []string{first}},
		"a secret for plain":  {Preset: "plain", Secrets: []string{first}},
		"public key in vain":  {Preset: "discord", Secrets: []string{"zz"}},
		"a bad deliveryId":    {Preset: "plain", Settings: map[string]string{"deliveryId": "body"}},
		"missing verifyToken": {Preset: "meta", Secrets: []string{first}},
		"a secret as ID": {
			Preset:   "gitlab",
			Secrets:  []string{first},
			Settings: map[string]string{"deliveryId": "header:X-Gitlab-Token"},
		},
		"a shown header": {
			Preset:   "header",
			Secrets:  []string{first},
			Settings: map[string]string{"header": "X-Webhook-Delivery-Id"},
		},
	} {
		var invalid *edit.InvalidFieldError
		if _, _, err := r.PutSender(t.Context(), "wf", "node", spec); !errors.As(err, &invalid) ||
			strings.Contains(err.Error(), first) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := r.PutSender(t.Context(), "wf", "gone",
		edit.SenderSpec{Preset: "plain"}); !errors.Is(err, edit.ErrNotFound) {
		t.Errorf("no such node: %v", err)
	}
	var five []string
	for n := range 5 {
		five = append(five, fmt.Sprint(first, n))
	}
	if _, _, err := r.PutSender(t.Context(), "wf", "node", edit.SenderSpec{
		Preset:  "github",
		Secrets: five,
	}); !errors.Is(err, edit.ErrTooManySecrets) {
		t.Errorf("five: %v", err)
	}
}

func TestASecretSettingStaysAndIsNotShown(t *testing.T) {
	t.Parallel()
	r := registrytest.StartWithKeys(t, natstest.Start(t).Connect(t), keysOf(t, seal.NewKeyLine()))
	r.CreateWorkflow(t, "wf", "free", true)
	spec := edit.SenderSpec{
		Preset:   "meta",
		Secrets:  []string{first},
		Settings: map[string]string{"verifyToken": "chosen-by-me"},
	}
	info, _, err := r.PutSender(t.Context(), "wf", "node", spec)
	if err != nil || len(info.Settings) != 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	revision := r.Follower.Revision()
	if _, _, err := r.PutSender(t.Context(), "wf", "node",
		edit.SenderSpec{Preset: "meta"}); err != nil {
		t.Fatalf("the verify token did not stay: %v", err)
	}
	if _, _, err := r.PutSender(t.Context(), "wf", "node", spec); err != nil ||
		r.Follower.Revision() != revision {
		t.Errorf("PUT is not idempotent: %v", err)
	}
}

func TestWithoutAKeyNoSecretIsSet(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	r.CreateWorkflow(t, "wf", "free", true)
	if _, _, err := r.PutSender(t.Context(), "wf", "node", edit.SenderSpec{
		Preset:  "github",
		Secrets: []string{first},
	}); !errors.Is(err, seal.ErrNoKey) {
		t.Error(err)
	}
	if _, _, err := r.PutSender(t.Context(), "wf", "node",
		edit.SenderSpec{Preset: "plain"}); err != nil {
		t.Errorf("what needs no secret needs no key: %v", err)
	}
}

// inNATS reports whether a server's files contain a text anywhere. NATS keeps overwritten data
// until it compacts its files, so only a text that was never stored is certain to be absent.
func inNATS(t *testing.T, server *natstest.Node, text string) bool {
	t.Helper()
	found := false
	fatal(t, filepath.WalkDir(server.StoreDir(), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(text))
		return err
	}))
	return found
}

func TestWithAKeyNothingInNATSIsInClear(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.StartWithKeys(t, server.Connect(t), keysOf(t, seal.NewKeyLine()))
	token := r.CreateWorkflow(t, "wf", "free", true)
	if _, _, err := r.PutSender(t.Context(), "wf", "node", edit.SenderSpec{
		Preset:   "meta",
		Secrets:  []string{first},
		Settings: map[string]string{"verifyToken": "chosen-by-me"},
	}); err != nil {
		t.Fatal(err)
	}
	fatal(t, r.RotateToken(t.Context(), "wf", "node", time.Hour))
	newest := r.Token(t, "wf", "node")
	server.Stop()
	for _, secret := range []string{token, newest, first, "chosen-by-me"} {
		if inNATS(t, server, secret) {
			t.Errorf("%q is there in clear", secret)
		}
	}
	if !inNATS(t, server, "on-free") {
		t.Error("nothing is found at all")
	}
}

func TestReseal(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	before := registrytest.Start(t, server.Connect(t)) // without a key
	ctx := t.Context()
	token := before.CreateWorkflow(t, "wf", "free", true)
	before.CreateWorkflow(t, "other", "free", false)

	oldLine, newLine := seal.NewKeyLine(), seal.NewKeyLine()
	old, both, only := keysOf(t, oldLine), keysOf(t, newLine, oldLine), keysOf(t, newLine)
	reseal := func(keys *seal.Keys, want edit.ResealResult) {
		t.Helper()
		if done, err := edit.Reseal(ctx, before.JetStream, keys, logtest.Discard(), func(
			edit.ResealResult,
		) {
		}); err != nil || done != want {
			t.Fatalf("%+v, %v; want %+v", done, err, want)
		}
	}
	reseal(old, edit.ResealResult{RecordsRead: 4, RecordsWritten: 2})
	reseal(old, edit.ResealResult{RecordsRead: 4})
	if _, err := before.Trigger(ctx, "wf", "node"); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("who has no key: %v", err)
	}
	r := registrytest.StartWithKeys(t, server.Connect(t), old)
	if r.Token(t, "wf", "node") != token {
		t.Error("the token is another one")
	}
	if _, _, err := r.PutSender(ctx, "wf", "node", edit.SenderSpec{
		Preset:   "meta",
		Secrets:  []string{first},
		Settings: map[string]string{"verifyToken": "v"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := edit.Reseal(ctx, before.JetStream, only, logtest.Discard(),
		func(edit.ResealResult) {}); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("without the key from before: %v", err)
	}
	reseal(both, edit.ResealResult{RecordsRead: 4, RecordsWritten: 3})

	after := registrytest.StartWithKeys(t, server.Connect(t), only)
	if after.Token(t, "wf", "node") != token {
		t.Error("the token is another one")
	}
	if n, err := after.RegistryIndex.UnusableSenderCount(); n != 0 {
		t.Errorf("%d senders cannot be used: %v", n, err)
	}
	late, _ := registrytest.StartIngressWithKeys(t, server.Connect(t), old)
	view, _ := late.Lookup("wf")
	if n, err := late.UnusableSenderCount(); n != 1 || !errors.Is(err, seal.ErrNoKey) ||
		view.Workflow.Nodes[0].UnusableReason == nil || view.Workflow.Nodes[0].Sender != nil {
		t.Errorf("an ingress without the key: %d, %v", n, err)
	}
}

// When a call that sets or removes a sender, or adds a secret to it, has returned, every ingress
// verifies requests only with the secrets that are still valid after the call.
func TestEveryChangeOfASenderIsInForceWhenItReturns(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	keys := keysOf(t, seal.NewKeyLine())
	r := registrytest.StartWithKeys(t, server.Connect(t), keys)
	one, _ := registrytest.StartIngressWithKeys(t, server.Connect(t), keys)
	two, _ := registrytest.StartIngressWithKeys(t, server.Connect(t), keys)
	r.CreateWorkflow(t, "wf", "free", true)
	ctx := t.Context()
	expect := func(round int, what, want string) {
		t.Helper()
		for _, i := range []*registrytest.Ingress{one, two} {
			if got := fmt.Sprint(opens(t, i, first, second)); got != want {
				t.Fatalf("round %d, %s: %s", round, what, got)
			}
		}
	}
	rounds := 500
	if testing.Short() {
		rounds = 20
	}
	atOnce := time.Duration(0)
	for round := range rounds {
		_, _, err := r.PutSender(ctx, "wf", "node", edit.SenderSpec{
			Preset:  "github",
			Secrets: []string{first},
		})
		fatal(t, err)
		expect(round, "set", "[the-first-secret]")
		_, err = r.AddSenderSecret(ctx, "wf", "node", second, &atOnce)
		fatal(t, err)
		expect(round, "rotated", "[the-second-secret]")
		fatal(t, r.RemoveSender(ctx, "wf", "node"))
		expect(round, "removed", "[]")
	}
	if view, _ := one.Lookup("wf"); len(view.Workflow.Nodes) != 1 ||
		view.Workflow.Nodes[0].Tokens[0].Hash != registry.HashToken(r.Token(t, "wf", "node")) {
		t.Error("the token has changed")
	}
}

// A filter or a SyncResponse cannot be set while a live ingress does not support it, because that
// ingress would ignore the filter, or would respond before the execution has finished. If a
// workflow already has such a setting, its other settings can be changed, and the setting can be
// removed.
func TestAnOldIngressForbidsSettings(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	r.CreateWorkflow(t, "has", "pro", true)
	r.CreateWorkflow(t, "wf", "pro", true)
	settings := map[string]edit.TriggerSettings{
		"filter": {Filter: []byte(`{"ptr:/a":1}`)},
		"answer": {SyncResponse: &registry.SyncResponse{WaitSeconds: 5}},
	}
	put := func(id, name string, s edit.TriggerSettings) error {
		_, _, err := r.PutWorkflow(t.Context(), edit.WorkflowSpec{
			ID:        id,
			AccountID: "on-pro",
			Name:      name,
			Triggers:  []edit.TriggerSpec{{NodeID: "node", TriggerSettings: s}},
		})
		return err
	}
	for name, s := range settings {
		fatal(t, put("has", "before", s))
		old, err := consistency.StartHeartbeat(t.Context(), server.Connect(t), r.Follower,
			consistency.RoleIngress, &consistency.IngressSettings{}, consistency.ProcessInfo{
				Capabilities: []consistency.Capability{consistency.CapabilitySenders},
			}, logtest.Discard())
		fatal(t, err)
		awaitLacking(t, r, consistency.CapabilitySyncResponses)
		if err := put("wf", "wf", s); !errors.Is(err, edit.ErrIngressTooOld) {
			t.Errorf("%s beside an ingress that does not know it: %v", name, err)
		}
		fatal(t, put("has", "after", s))
		fatal(t, put("has", "after", edit.TriggerSettings{}))
		old.Stop()
		// The executor learns only a moment later that the old ingress is leaving. Retry until
		// then.
		err = edit.ErrIngressTooOld
		retry.Until(t.Context(), 10*time.Millisecond, func() bool {
			err = put("wf", "wf", s)
			return !errors.Is(err, edit.ErrIngressTooOld)
		})
		fatal(t, err)
		fatal(t, put("wf", "wf", edit.TriggerSettings{}))
	}
}

// A sender cannot be set while a live ingress does not support senders, because that ingress would
// accept requests from anybody who has the token.
func TestAnOldIngressForbidsASender(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	keys := keysOf(t, seal.NewKeyLine())
	r := registrytest.StartWithKeys(t, server.Connect(t), keys)
	r.CreateWorkflow(t, "wf", "pro", true)
	registrytest.StartIngressWithKeys(t, server.Connect(t), keys)
	old, err := consistency.StartHeartbeat(t.Context(), server.Connect(t), r.Follower,
		consistency.RoleIngress, &consistency.IngressSettings{}, consistency.ProcessInfo{},
		logtest.Discard())
	fatal(t, err)
	awaitLacking(t, r, consistency.CapabilitySenders)
	put := func() error {
		_, _, err := r.PutSender(t.Context(), "wf", "node", edit.SenderSpec{
			Preset:  "github",
			Secrets: []string{first},
		})
		return err
	}
	if err := put(); !errors.Is(err, edit.ErrIngressTooOld) {
		t.Errorf("beside an ingress that cannot verify: %v", err)
	}
	if info, err := r.Sender(t.Context(), "wf", "node"); info != nil || err != nil {
		t.Errorf("it is set all the same: %+v, %v", info, err)
	}
	old.Stop()
	// The executor learns only a moment later that the old ingress is leaving. Retry until then.
	err = edit.ErrIngressTooOld
	retry.Until(t.Context(), 10*time.Millisecond, func() bool {
		err = put()
		return !errors.Is(err, edit.ErrIngressTooOld)
	})
	fatal(t, err)
}

// awaitLacking waits until the registry's list of members contains an ingress that lacks the
// capability c.
func awaitLacking(t *testing.T, r *registrytest.Registry, c consistency.Capability) {
	t.Helper()
	retry.Until(t.Context(), time.Millisecond, func() bool {
		return len(r.Membership.IngressesWithout(c)) > 0
	})
}
