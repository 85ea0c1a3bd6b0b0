package manifest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/execution"
)

// Step is one change to an installation that makes it match the documents.
type Step struct {
	// DescriptionLines is a human-readable description of the change. The first line is a heading.
	DescriptionLines []string
	// Apply makes the change by calling the API.
	Apply func(ctx context.Context, client *apiclient.Client) error
	// DependsOn holds the keys of documents whose steps must have succeeded first. For example,
	// a workflow is activated only after its senders have been set.
	DependsOn []string
	key       string // the key of the document
}

// Key returns the key of the step's document. A step that depends on this one has the key in its
// DependsOn.
func (s Step) Key() string { return s.key }

// Plan returns the steps that turn the current state (have) into the state that the documents
// describe (want), in the order in which to apply them. Objects on which others depend come first,
// a workflow is activated only after its senders are set, and deletions come last.
//
// If prune is false, Plan keeps the objects that have no document. Regardless of prune, it removes
// the nodes and settings of an object that the object's document omits, except for fields whose
// comments say that their absence changes nothing.
func Plan(have, want *DocumentSet, prune bool) []Step {
	var steps []Step
	add := func(step *Step) {
		if step != nil {
			steps = append(steps, *step)
		}
	}
	workflows := documentsByKey(have.Workflows)
	accounts := documentsByKey(have.Accounts)
	senders := documentsByKey(have.Senders)
	for _, a := range want.Accounts {
		before, ok := accounts[a.key()]
		add(a.putStep(before, ok))
	}
	for _, w := range want.Workflows {
		before, ok := workflows[w.key()]
		add(w.putStep(before, ok))
	}
	for _, s := range want.Senders {
		s.Preset = cmp.Or(have.presetIDsByAlias[s.Preset], s.Preset)
		before, ok := senders[s.key()]
		add(s.putStep(before, ok))
	}
	queues := documentsByKey(have.Queues)
	for _, q := range want.Queues {
		add(q.step(queues[q.key()]))
	}
	for _, w := range want.Workflows {
		before := workflows[w.key()]
		step := w.activationStep(before.Active != nil && *before.Active)
		if step != nil && *w.Active {
			step.DependsOn = []string{w.key()}
			for _, s := range want.Senders {
				if s.WorkflowID == w.ID {
					step.DependsOn = append(step.DependsOn, s.key())
				}
			}
		}
		add(step)
	}
	for _, a := range want.Accounts {
		add(a.eventsStep(accounts[a.key()]))
	}
	if prune {
		steps = append(steps, deletionSteps(have, want)...)
	}
	return steps
}

// CheckNoSecretValues returns an error if a document of want contains the value of a secret
// setting. Otherwise, Plan would display the value, and would find a difference every time, because
// the API never returns secret settings to compare with. have determines which settings are secret.
func CheckNoSecretValues(have, want *DocumentSet) error {
	for _, s := range want.Senders {
		for _, name := range have.secretSettingsByPreset[cmp.Or(have.presetIDsByAlias[s.Preset],
			s.Preset)] {
			if s.Settings[name] != "" {
				return want.AddLocation(s.key(), fmt.Errorf("settings: %s is secret: name an "+
					"environment variable that holds it in settingsFrom", name))
			}
		}
	}
	return nil
}

func documentsByKey[T interface{ key() string }](list []T) map[string]T {
	found := make(map[string]T, len(list))
	for _, object := range list {
		found[object.key()] = object
	}
	return found
}

// fieldTexts maps the names of a document's fields to their values as text.
type fieldTexts map[string]string

// diffLines returns a line for each field that was added, removed or changed, sorted by field name.
func diffLines(before, after fieldTexts) (lines []string) {
	names := fieldTexts{}
	maps.Copy(names, before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, wasThere := before[name]
		is, isThere := after[name]
		switch {
		case was == is && wasThere == isThere:
		case !wasThere:
			lines = append(lines, "    + "+name+": "+is)
		case !isThere:
			lines = append(lines, "    - "+name+": "+was)
		default:
			lines = append(lines, "    "+name+": "+was+" → "+is)
		}
	}
	return lines
}

// newPutStep returns the step that creates the object with the given key or, if exists is true,
// changes the fields of this object that differ between before and after. The step calls apply to
// make the change. If there is nothing to change, newPutStep returns nil.
func newPutStep(
	key string, exists bool, before, after fieldTexts,
	apply func(context.Context, *apiclient.Client) error,
) *Step {
	if !exists {
		return &Step{
			DescriptionLines: append([]string{"+ " + key}, diffLines(nil, after)...),
			Apply:            apply,
			key:              key,
		}
	}
	lines := diffLines(before, after)
	if len(lines) == 0 {
		return nil
	}
	return &Step{DescriptionLines: append([]string{"~ " + key}, lines...), Apply: apply, key: key}
}

func (a Account) putStep(before Account, exists bool) *Step {
	if a.Plan == "" {
		a.Plan = before.Plan
	}
	return newPutStep(a.key(), exists, before.fields(), a.fields(), func(
		ctx context.Context, client *apiclient.Client,
	) error {
		if !exists {
			_, err := client.IfNew().PutAccount(ctx, a.ID, api.PutAccount{
				Name: a.Name,
				Plan: a.Plan,
			})
			return err
		}
		var tag string
		now, err := client.WithETag(&tag).Account(ctx, a.ID)
		if err != nil {
			return err
		}
		if now.Name != before.Name || now.Plan != before.Plan {
			return conflictError(a.key())
		}
		_, err = client.IfMatch(tag).PatchAccount(ctx, a.ID, apiclient.Patch{
			"name": a.Name,
			"plan": a.Plan,
		})
		return err
	})
}

// eventsStep returns the step that changes which workflow the account's operator events start. The
// workflow must exist first, so this step comes after the steps of the workflows.
func (a Account) eventsStep(before Account) *Step {
	lines := diffLines(before.Events.fields(), a.Events.fields())
	if len(lines) == 0 {
		return nil
	}
	needs := []string{a.key()}
	if a.Events != nil {
		needs = append(needs, Workflow{ID: a.Events.WorkflowID}.key())
	}
	return &Step{
		DescriptionLines: append([]string{"~ " + a.key()}, lines...), key: a.key(),
		DependsOn: needs,
		Apply: func(ctx context.Context, client *apiclient.Client) error {
			if a.Events == nil {
				return client.DeleteEvents(ctx, a.ID)
			}
			_, err := client.PutEvents(ctx, a.ID, api.PutEvents(*a.Events))
			return err
		},
	}
}

func (e *Events) fields() fieldTexts {
	if e == nil {
		return nil
	}
	f := fieldTexts{"events.workflowId": e.WorkflowID}
	if len(e.Kinds) > 0 {
		f["events.kinds"] = strings.Join(slices.Sorted(slices.Values(e.Kinds)), ", ")
	}
	if e.SilentAfterSeconds != 0 {
		f["events.silentAfterSeconds"] = strconv.FormatInt(e.SilentAfterSeconds, 10)
	}
	return f
}

// conflictError returns the error for an object that another client has changed since the state of
// the installation was read. The plan that the user has seen is then out of date.
func conflictError(key string) error {
	return fmt.Errorf("somebody has changed %s meanwhile: look at the differences again with "+
		"--dry-run, then run apply again", key)
}

func (a Account) fields() fieldTexts {
	return fieldTexts{"name": strconv.Quote(a.Name), "plan": a.Plan}
}

func (w Workflow) putStep(before Workflow, exists bool) *Step {
	w.Queue = cmp.Or(w.Queue, execution.DefaultQueue)
	samples := map[string]Payload{}
	for _, t := range before.Triggers {
		samples[t.NodeID] = t.SamplePayload
	}
	w.Triggers = slices.Clone(w.Triggers)
	for i, t := range w.Triggers {
		if t.SamplePayload == "" { // the node keeps its payload
			w.Triggers[i].SamplePayload = samples[t.NodeID]
		}
	}
	return newPutStep(w.key(), exists, before.fields(), w.fields(), func(
		ctx context.Context, client *apiclient.Client,
	) error {
		if !exists {
			_, err := client.IfNew().PutWorkflow(ctx, w.ID, w.apiPutWorkflow())
			return err
		}
		var tag string
		now, err := client.WithETag(&tag).Workflow(ctx, w.ID)
		if err != nil {
			return err
		}
		if !now.UpdatedAt.Equal(before.updatedAt) {
			return conflictError(w.key())
		}
		_, err = client.IfMatch(tag).PutWorkflow(ctx, w.ID, w.apiPutWorkflow())
		return err
	})
}

func (w Workflow) fields() fieldTexts {
	f := fieldTexts{"accountId": w.AccountID, "name": strconv.Quote(w.Name), "queue": w.Queue}
	if w.RateLimit != nil {
		f["rateLimit"] = fmt.Sprintf("%d in %d s", w.RateLimit.Requests, w.RateLimit.WindowSeconds)
	}
	for _, t := range w.Triggers {
		at := "triggers[" + t.NodeID + "]"
		f[at+".name"] = strconv.Quote(t.Name)
		if t.SamplePayload != "" {
			f[at+".samplePayload"] = compactJSON(t.SamplePayload)
		}
		if len(t.Filter) > 0 {
			f[at+".filter"] = canonicalFilterJSON(t.Filter)
		}
		if t.OrderKey != "" {
			f[at+".orderKey"] = t.OrderKey
		}
		if t.Answer != nil {
			f[at+".answer"] = t.Answer.String()
		}
	}
	return f
}

// String returns a human-readable description of the answer settings.
func (a Answer) String() string {
	text := fmt.Sprintf("waits %d s", a.WaitSeconds)
	if a.RawOutput {
		text += ", raw"
	}
	return text
}

// canonicalFilterJSON returns the JSON of a filter with its members sorted by name, so that two
// filters can be compared. A filter that is not JSON is returned unchanged.
func canonicalFilterJSON(f Filter) string {
	decoder := json.NewDecoder(bytes.NewReader(f))
	decoder.UseNumber()
	var conditions any
	if decoder.Decode(&conditions) != nil {
		return string(f)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(conditions) != nil {
		return string(f)
	}
	return strings.TrimSpace(text.String())
}

// activationStep returns the step that activates or deactivates the workflow to match its document.
// active is the current state. activationStep returns nil if the document does not set the state or
// already agrees with it.
func (w Workflow) activationStep(active bool) *Step {
	if w.Active == nil || *w.Active == active {
		return nil
	}
	change, word := (*apiclient.Client).Deactivate, "deactivate"
	if *w.Active {
		change, word = (*apiclient.Client).Activate, "activate"
	}
	return &Step{
		DescriptionLines: []string{"~ " + w.key() + ": " + word}, key: w.key(),
		Apply: func(
			ctx context.Context, client *apiclient.Client,
		) error {
			_, err := change(client, ctx, w.ID)
			return err
		},
	}
}

func (s Sender) putStep(before Sender, exists bool) *Step {
	return newPutStep(s.key(), exists, before.fields(), s.fields(), func(
		ctx context.Context, client *apiclient.Client,
	) error {
		put := api.PutSender{Preset: s.Preset, Settings: s.Settings}
		if !exists || before.Preset != s.Preset {
			if err := s.addSecretsFromEnv(&put); err != nil {
				return err
			}
		}
		_, err := client.PutSender(ctx, s.WorkflowID, s.NodeID, put)
		if problem, ok := errors.AsType[*api.Problem](err); ok && len(put.Secrets) == 0 &&
			slices.ContainsFunc(problem.Errors, func(f api.FieldError) bool {
				return f.Field == "secrets"
			}) {
			return fmt.Errorf("the sender %s needs a secret, which no file holds: name its "+
				"environment variable in secretsFrom, or run hookstart sender set --help", s.Preset)
		}
		return err
	})
}

// addSecretsFromEnv reads the sender's secrets from environment variables and adds them to the body
// of the API call (to). The documents never contain secrets.
func (s Sender) addSecretsFromEnv(to *api.PutSender) error {
	for _, name := range s.SecretsFrom {
		secret := os.Getenv(name)
		if secret == "" {
			return fmt.Errorf("secretsFrom: the environment variable %s is not set", name)
		}
		to.Secrets = append(to.Secrets, secret)
	}
	to.Settings = maps.Clone(s.Settings)
	for setting, name := range s.SettingsFrom {
		value := os.Getenv(name)
		if value == "" {
			return fmt.Errorf("settingsFrom: the environment variable %s is not set", name)
		}
		if to.Settings == nil {
			to.Settings = map[string]string{}
		}
		to.Settings[setting] = value
	}
	return nil
}

func (s Sender) fields() fieldTexts {
	f := fieldTexts{"preset": s.Preset}
	for name, value := range s.Settings {
		if value != "" { // the API does not store empty settings
			f["settings."+name] = strconv.Quote(value)
		}
	}
	return f
}

// deletionSteps returns the steps that delete the objects of have for which want has no document.
// They are ordered so that no deletion depends on a later one.
func deletionSteps(have, want *DocumentSet) (steps []Step) {
	remove := func(key string, do func(context.Context, *apiclient.Client) error) {
		steps = append(steps, Step{DescriptionLines: []string{"- " + key}, Apply: do})
	}
	workflows, accounts, senders := documentsByKey(want.Workflows), documentsByKey(want.Accounts),
		documentsByKey(want.Senders)
	for _, s := range have.Senders {
		_, workflowStays := workflows[Workflow{ID: s.WorkflowID}.key()]
		if _, stays := senders[s.key()]; !stays && workflowStays {
			remove(s.key(), func(ctx context.Context, client *apiclient.Client) error {
				err := client.DeleteSender(ctx, s.WorkflowID, s.NodeID)
				if api.IsCode(err, api.CodeNotFound) {
					return nil // the sender's node has been deleted already
				}
				return err
			})
		}
	}
	queues := documentsByKey(want.Queues)
	for _, q := range have.Queues {
		if _, stays := queues[q.key()]; !stays {
			remove(q.key()+": its own stream",
				func(ctx context.Context, client *apiclient.Client) error {
					return client.DropQueueStream(ctx, q.ID)
				})
		}
	}
	for _, w := range have.Workflows {
		if _, stays := workflows[w.key()]; !stays {
			remove(w.key(), func(ctx context.Context, client *apiclient.Client) error {
				return client.DeleteWorkflow(ctx, w.ID)
			})
		}
	}
	for _, a := range have.Accounts {
		if _, stays := accounts[a.key()]; !stays {
			remove(a.key(), func(ctx context.Context, client *apiclient.Client) error {
				return client.DeleteAccount(ctx, a.ID)
			})
		}
	}
	return steps
}

// compactJSON removes insignificant white space from a payload, for comparison and display. A
// payload that is not JSON is returned unchanged.
func compactJSON(p Payload) string {
	var text bytes.Buffer
	if json.Compact(&text, []byte(p)) != nil {
		return string(p)
	}
	return text.String()
}
