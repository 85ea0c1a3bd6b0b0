package manifest

import (
	"cmp"
	"context"
	"slices"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
)

// State reads what an installation has, as far as the caller sees it, in the order of IDs.
func State(ctx context.Context, client *apiclient.Client) (*Set, error) {
	s := &Set{}
	accounts, err := all(func(p apiclient.Page) (api.List[api.Account], error) { return client.Accounts(ctx, p) })
	if err != nil {
		return nil, err
	}
	for _, a := range accounts {
		s.Accounts = append(s.Accounts, Account{Kind: KindAccount, ID: a.ID, Name: a.Name, Plan: a.Plan})
	}
	workflows, err := all(func(p apiclient.Page) (api.List[api.Workflow], error) { return client.Workflows(ctx, "", p) })
	if err != nil {
		return nil, err
	}
	for _, w := range workflows {
		if err := s.addWorkflow(ctx, client, w); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(s.Accounts, func(a, b Account) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(s.Workflows, func(a, b Workflow) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(s.Senders, func(a, b Sender) int {
		return cmp.Or(cmp.Compare(a.WorkflowID, b.WorkflowID), cmp.Compare(a.NodeID, b.NodeID))
	})
	return s, nil
}

func (s *Set) addWorkflow(ctx context.Context, client *apiclient.Client, w api.Workflow) error {
	document := Workflow{Kind: KindWorkflow, ID: w.ID, AccountID: w.AccountID, Name: w.Name, Queue: w.Queue, Active: &w.Active}
	if w.RateLimit != nil {
		document.RateLimit = &RateLimit{Requests: w.RateLimit.Requests, WindowSeconds: w.RateLimit.WindowSeconds}
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
		document.Triggers = append(document.Triggers, trigger)
		if t.Sender != nil {
			s.Senders = append(s.Senders, Sender{Kind: KindSender, WorkflowID: w.ID, NodeID: t.NodeID, Preset: t.Sender.Preset, Settings: t.Sender.Settings})
		}
	}
	s.Workflows = append(s.Workflows, document)
	return nil
}

// all reads every page of a list.
func all[T any](fetch func(apiclient.Page) (api.List[T], error)) (items []T, err error) {
	page := apiclient.Page{Limit: api.MaxLimit}
	for {
		part, err := fetch(page)
		if err != nil {
			return nil, err
		}
		items = append(items, part.Items...)
		if page.Cursor = part.NextCursor; page.Cursor == "" {
			return items, nil
		}
	}
}
