package operate

import (
	"context"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/queues"
)

const queuesList = "queues"

// Queues lists the queues of workflows, by name; only of one account's workflows, unless accountID is empty. The contents of
// a queue that other accounts use, too, are shown only to callers who see all accounts.
func (s *Service) Queues(ctx context.Context, by Caller, accountID string, page Page) (api.List[api.Queue], error) {
	return read(ctx, s, by, needs(Viewer, within(&accountID)), func(ctx context.Context) (none api.List[api.Queue], err error) {
		after, err := page.after(queuesList)
		if err != nil {
			return none, err
		}
		all, err := s.config.Queues.Look(ctx)
		if err != nil {
			return none, err
		}
		found := s.queuesOf(accountID, all)
		rest := slices.DeleteFunc(slices.Clone(found), func(q queues.Queue) bool { return q.Name <= after })
		shared := s.sharedQueues(by)
		return list(queuesList, rest[:min(len(rest), page.Limit+1)], page, func(q queues.Queue) api.Queue { return queueOf(q, shared[q.Name]) }, func(q queues.Queue) string { return q.Name }), nil
	})
}

// queuesOf returns those of some queues that an account's workflows use.
func (s *Service) queuesOf(accountID string, all []queues.Queue) []queues.Queue {
	if accountID == "" {
		return all
	}
	named := map[string]bool{}
	for w := range s.workflows(accountID, "") {
		named[w.Queue] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(q queues.Queue) bool { return !named[q.Name] })
}

// NobodyTakes returns the queues of workflows without a runner at the last poll, a few seconds ago. It makes no remote call.
func (s *Service) NobodyTakes(ctx context.Context, by Caller) (map[string]api.Queue, error) {
	return read(ctx, s, by, needs(Viewer, ofNone), func(context.Context) (map[string]api.Queue, error) {
		idle := map[string]api.Queue{}
		last, _ := s.config.Queues.Last()
		shared := s.sharedQueues(by)
		for _, q := range s.queuesOf(by.AccountID, last) {
			if q.Members() == 0 {
				idle[q.Name] = queueOf(q, shared[q.Name])
			}
		}
		return idle, nil
	})
}

// sharedQueues are the queues that workflows of accounts name which the caller does not see.
func (s *Service) sharedQueues(by Caller) map[string]bool {
	if by.AccountID == "" {
		return nil
	}
	shared := map[string]bool{}
	for w := range s.workflows("", "") {
		if !by.sees(w.AccountID) {
			shared[w.Queue] = true
		}
	}
	return shared
}

func queueOf(q queues.Queue, shared bool) api.Queue {
	if shared {
		q.Waiting, q.Oldest, q.Groups = 0, time.Time{}, slices.Clone(q.Groups)
		for i := range q.Groups {
			q.Groups[i].Waiting = 0
		}
	}
	of := api.Queue{Queue: q.Name, Waiting: q.Waiting, Shared: shared, OldestAcceptedAt: q.Oldest.UTC(), Groups: make([]api.QueueGroup, len(q.Groups))}
	for i, g := range q.Groups {
		of.Groups[i] = api.QueueGroup{Group: g.Name, Members: g.Members, Waiting: g.Waiting, LastSeenAt: g.LastSeen.UTC()}
	}
	return of
}
