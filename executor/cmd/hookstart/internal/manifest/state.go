package manifest

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

// ReadInstallation returns the state of an installation as documents, sorted by ID. It includes
// only what the caller is permitted to read.
func ReadInstallation(ctx context.Context, client *apiclient.Client) (*DocumentSet, error) {
	s := &DocumentSet{}
	for a, err := range apiclient.Items(func(p apiclient.Page) (api.List[api.Account], error) {
		return client.Accounts(ctx, p)
	}) {
		if err != nil {
			return nil, err
		}
		document := Account{Kind: KindAccount, ID: a.ID, Name: a.Name, Plan: a.Plan}
		if a.Events != nil {
			document.Events = (*Events)(a.Events)
		}
		s.Accounts = append(s.Accounts, document)
	}
	presets, err := client.SenderPresets(ctx)
	if err != nil {
		return nil, err
	}
	s.presetIDsByAlias = presetIDsByAlias(presets.Items)
	s.secretSettingsByPreset = secretSettingsByPreset(presets.Items)
	for w, err := range apiclient.Items(func(p apiclient.Page) (api.List[api.Workflow], error) {
		return client.Workflows(ctx, "", p)
	}) {
		if err != nil {
			return nil, err
		}
		if err := s.addWorkflow(ctx, client, w, presets.Items); err != nil {
			return nil, err
		}
	}
	if err := s.addQueues(ctx, client); err != nil {
		return nil, err
	}
	slices.SortFunc(s.Accounts, func(a, b Account) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(s.Workflows, func(a, b Workflow) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(s.Senders, func(a, b Sender) int {
		return cmp.Or(cmp.Compare(a.WorkflowID, b.WorkflowID), cmp.Compare(a.NodeID, b.NodeID))
	})
	slices.SortFunc(s.Queues, func(a, b Queue) int { return cmp.Compare(a.ID, b.ID) })
	return s, nil
}

// presetIDsByAlias returns a map from the aliases of presets to the IDs of these presets.
func presetIDsByAlias(presets []api.SenderPreset) map[string]string {
	ids := map[string]string{}
	for _, p := range presets {
		for _, alias := range p.Aliases {
			ids[alias] = p.ID
		}
	}
	return ids
}

// secretSettingsByPreset returns the names of the secret settings of each preset, keyed by preset
// ID.
func secretSettingsByPreset(presets []api.SenderPreset) map[string][]string {
	secret := map[string][]string{}
	for _, p := range presets {
		for _, setting := range p.Settings {
			if setting.Secret {
				secret[p.ID] = append(secret[p.ID], setting.Name)
			}
		}
	}
	return secret
}

func (s *DocumentSet) addWorkflow(
	ctx context.Context, client *apiclient.Client, w api.Workflow, presets []api.SenderPreset,
) error {
	document := Workflow{
		Kind:      KindWorkflow,
		ID:        w.ID,
		AccountID: w.AccountID,
		Name:      w.Name,
		Queue:     w.Queue,
		Active:    &w.Active,
		updatedAt: w.UpdatedAt,
	}
	if w.RateLimit != nil {
		document.RateLimit = &RateLimit{
			Requests:      w.RateLimit.Requests,
			WindowSeconds: w.RateLimit.WindowSeconds,
		}
	}
	for _, one := range w.Triggers {
		t, err := client.Trigger(ctx, w.ID, one.NodeID)
		if err != nil {
			return err
		}
		trigger := Trigger{NodeID: t.NodeID, Name: t.Name}
		if len(t.SamplePayload) > 0 && string(t.SamplePayload) != "null" {
			trigger.SamplePayload = Payload(t.SamplePayload)
		}
		trigger.Filter = Filter(t.Filter)
		trigger.OrderKey = t.OrderKey
		if t.Answer != nil {
			trigger.Answer = &Answer{WaitSeconds: t.Answer.WaitSeconds, RawOutput: t.Answer.Raw}
		}
		document.Triggers = append(document.Triggers, trigger)
		if t.Sender != nil {
			s.Senders = append(s.Senders, senderDocument(w.ID, t.NodeID, t.Sender, presets))
		}
	}
	s.Workflows = append(s.Workflows, document)
	return nil
}

// senderDocument returns the document of a sender. It contains names of environment variables
// instead of secrets.
func senderDocument(workflowID, nodeID string, have *api.Sender,
	presets []api.SenderPreset,
) Sender {
	document := Sender{
		Kind:       KindSender,
		WorkflowID: workflowID,
		NodeID:     nodeID,
		Preset:     have.Preset,
		Settings:   have.Settings,
	}
	if len(have.Secrets) > 0 {
		document.SecretsFrom = []string{secretVariableName(workflowID, nodeID, "secret")}
	}
	for _, preset := range presets {
		for _, setting := range preset.Settings {
			if preset.ID == have.Preset && setting.Secret && setting.Required {
				if document.SettingsFrom == nil {
					document.SettingsFrom = map[string]string{}
				}
				document.SettingsFrom[setting.Name] = secretVariableName(
					workflowID,
					nodeID,
					setting.Name,
				)
			}
		}
	}
	return document
}

// secretVariableName joins IDs and the name of a setting to form the name of an environment
// variable, such as ORDERS_WEBHOOK_SECRET. IDs that differ only in case, or only in - and _, result
// in the same name. The user must then rename one of the variables.
func secretVariableName(parts ...string) string {
	return strings.ToUpper(strings.ReplaceAll(strings.Join(parts, "_"), "-", "_"))
}
