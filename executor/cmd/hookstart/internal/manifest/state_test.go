package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hookstart/hookstart/executor/client/api"
)

// Documents may name a preset by its alias, and set a setting to "", which counts as unset.
func TestASenderByItsAliasIsNoDifference(t *testing.T) {
	t.Parallel()
	stored := Sender{WorkflowID: "orders", NodeID: "hook", Preset: "standard-webhooks"}
	have := &DocumentSet{
		Senders:   []Sender{stored},
		presetIDs: presetIDs([]api.SenderPreset{{ID: stored.Preset, Aliases: []string{"svix"}}}),
	}
	wanted := stored
	wanted.Preset, wanted.Settings = "svix", map[string]string{"toleranceSeconds": ""}
	want := &DocumentSet{Senders: []Sender{wanted}}
	for _, step := range Plan(have, want, true) {
		t.Errorf("%q", step.Lines)
	}
	want.Senders[0].Preset = "github"
	if steps := Plan(have, want, true); len(steps) != 1 {
		t.Errorf("another preset: %d steps", len(steps))
	}
}

// An exported sender names an environment variable for each secret setting.
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
