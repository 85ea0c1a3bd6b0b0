package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hookstart/hookstart/executor/client/api"
)

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
