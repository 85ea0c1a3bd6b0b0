package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hookstart/hookstart/executor/client/api"
)

// Plan finds no difference between a stored sender and a document that names the sender's preset by
// an alias, or that has a setting with the value "", which counts as unset.
func TestASenderByItsAliasIsNoDifference(t *testing.T) {
	t.Parallel()
	stored := Sender{WorkflowID: "orders", NodeID: "hook", Preset: "standard-webhooks"}
	have := &DocumentSet{
		Senders: []Sender{stored},
		presetIDsByAlias: presetIDsByAlias([]api.SenderPreset{{
			ID:      stored.Preset,
			Aliases: []string{"svix"},
		}}),
	}
	wanted := stored
	wanted.Preset, wanted.Settings = "svix", map[string]string{"toleranceSeconds": ""}
	want := &DocumentSet{Senders: []Sender{wanted}}
	for _, step := range Plan(have, want, true) {
		t.Errorf("%q", step.DescriptionLines)
	}
	want.Senders[0].Preset = "github"
	if steps := Plan(have, want, true); len(steps) != 1 {
		t.Errorf("another preset: %d steps", len(steps))
	}
}

// A sender that is exported to a document names an environment variable for each of its secret
// settings.
func TestSecretSettingsHaveVariables(t *testing.T) {
	t.Parallel()
	secret := func(name string) api.PresetSetting {
		return api.PresetSetting{Name: name, Secret: true, Required: true}
	}
	got := senderDocument("orders", "on-paid", &api.Sender{Preset: "two"}, []api.SenderPreset{
		{ID: "other", Settings: []api.PresetSetting{secret("password")}},
		{ID: "two", Settings: []api.PresetSetting{secret("user"), secret("key"), {Name: "url"}}},
	})
	want := map[string]string{"user": "ORDERS_ON_PAID_USER", "key": "ORDERS_ON_PAID_KEY"}
	if diff := cmp.Diff(want, got.SettingsFrom); diff != "" {
		t.Error(diff)
	}
}

// A filter may contain any JSON, even JSON that is not valid YAML. Write keeps the order of its
// members, and reading the result again returns an equal filter.
func TestFiltersAreWrittenAsYAML(t *testing.T) {
	t.Parallel()
	for filter, want := range map[string]string{
		`{"ptr:/text":{"$prefix":"\ud83d\ude80"},"ptr:/a":["x",1.5,true,null,{}]}`: `
      "ptr:/text": {"$prefix": "\U0001F680"}
      "ptr:/a": ["x", 1.5, true, null, {}]
`,
		`{"$or":[{"ptr:/a":"yes"},{"ptr:/b":"\u007f\/"}]}`: `
      "$or": [{"ptr:/a": "yes"}, {"ptr:/b": "\x7F/"}]
`,
		`{"ptr:/` + strings.Repeat("long", 300) + `":"\nx"}`: `
      ? "ptr:/` + strings.Repeat("long", 300) + `"
      : "\nx"
`,
	} {
		have := &DocumentSet{Workflows: []Workflow{{
			Kind: KindWorkflow, ID: "w", Queue: "default",
			Triggers: []Trigger{{NodeID: "n", Filter: Filter(filter)}},
		}}}
		var text strings.Builder
		if err := have.Write(&text); err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		if _, got, _ := strings.Cut(text.String(), "    filter:"); got != want {
			t.Errorf("%s is written as%s", filter, got)
		}
		read := &DocumentSet{}
		if err := read.Read("export", strings.NewReader(text.String())); err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		for _, step := range Plan(have, read, false) {
			t.Errorf("%s: %q", filter, step.DescriptionLines)
		}
	}
}

// If one document cannot be written, Write writes none of them, because a file must not end in the
// middle of a document.
func TestWriteWritesAllOrNothing(t *testing.T) {
	t.Parallel()
	have := &DocumentSet{
		Accounts: []Account{{Kind: KindAccount, ID: "acme"}},
		Workflows: []Workflow{{Kind: KindWorkflow, ID: "broken", Triggers: []Trigger{
			{NodeID: "n", Filter: Filter(`{"a"`)},
		}}},
	}
	var text strings.Builder
	if err := have.Write(&text); err == nil || !strings.Contains(err.Error(), "broken") ||
		text.Len() > 0 {
		t.Errorf("%v, and written is %q", err, text.String())
	}
}

// A date in a document is read as a string and keeps its exact text. This applies to the values of
// all fields, to keys and aliases, and to values with an explicit !!timestamp tag.
func TestDatesStayAsTheyAre(t *testing.T) {
	t.Parallel()
	const document = `
kind: Workflow
id: w
name: 2026-11-26
triggers:
  - nodeId: n
    samplePayload: {day: &day 2026-11-26, 2026-01-02: *day, at: [!!timestamp 2026-11-26 10:00:00]}
    filter: {"ptr:/date": 2026-11-26}
`
	read := &DocumentSet{}
	if err := read.Read("file", strings.NewReader(document)); err != nil {
		t.Fatal(err)
	}
	got := read.Workflows[0]
	trigger := got.Triggers[0]
	if diff := cmp.Diff([]string{
		"2026-11-26",
		`{"2026-01-02":"2026-11-26","at":["2026-11-26 10:00:00"],"day":"2026-11-26"}`,
		`{"ptr:/date":"2026-11-26"}`,
	}, []string{got.Name, string(trigger.SamplePayload), string(trigger.Filter)}); diff != "" {
		t.Error(diff)
	}
}

// A document that contains the value of a secret setting is refused, even if it names the preset by
// an alias. The error does not contain the value.
func TestSecretSettingsAreNotInDocuments(t *testing.T) {
	t.Parallel()
	presets := []api.SenderPreset{{
		ID: "meta", Aliases: []string{"whatsapp"},
		Settings: []api.PresetSetting{{Name: "url"}, {Name: "verifyToken", Secret: true}},
	}}
	const refused = "f:5: settings: verifyToken is secret"
	have := &DocumentSet{
		presetIDsByAlias:       presetIDsByAlias(presets),
		secretSettingsByPreset: secretSettingsByPreset(presets),
	}
	for document, want := range map[string]string{
		"preset: meta\nsettings: {url: u, verifyToken: hidden}":   refused,
		"preset: whatsapp\nsettings: {verifyToken: hidden}":       refused,
		"preset: other\nsettings: {verifyToken: no secret there}": "",
		"preset: meta\nsettings: {verifyToken: ''}":               "",
		"preset: meta\nsettingsFrom: {verifyToken: VARIABLE}":     "",
	} {
		read := &DocumentSet{}
		if err := read.Read("f", strings.NewReader(
			"kind: Sender\nworkflowId: w\nnodeId: n\n"+document)); err != nil {
			t.Fatal(err)
		}
		err := CheckNoSecretValues(have, read)
		if (err == nil) != (want == "") || err != nil && (!strings.HasPrefix(err.Error(), want) ||
			strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%s: %v", document, err)
		}
	}
}
