package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/retry"
)

const (
	toggleInterval = 300 * time.Millisecond
	// toggleTimeout is the maximum duration of a call that toggles the workflow. It exceeds the
	// longest time for which an executor can be unavailable while its process keeps running.
	toggleTimeout = time.Minute
	// unansweredEffectWindow is the time in which a call that got no response may still take
	// effect, so that the state of the workflow is unknown. It is the longest time for which a
	// fault can delay a request.
	unansweredEffectWindow = 2 * longestFreeze
)

// toggleAndCheckWorkflow alternately deactivates and activates a workflow until the starting
// context is done. It makes each change through a random executor that has no fault at the moment,
// but may have just recovered from one. Immediately after each change, it sends a request to every
// ingress. The result describes the responses that show the state before the change.
func (i *installation) toggleAndCheckWorkflow(
	ctx, starting context.Context, s *senders, f *faultInjector, seed uint64,
) (contradictions []string) {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not a secret
	active, unknownUntil := true, time.Time{}
	for number := 0; starting.Err() == nil; number++ {
		retry.Sleep(starting, toggleInterval)
		e := i.executors[random.IntN(len(i.executors))]
		if f.hasFaultAt(e.name) {
			continue
		}
		active = !active
		if err := setToggledWorkflowActive(
			ctx,
			apiclient.New(e.url, adminToken),
			active,
		); err != nil {
			unknownUntil = time.Now().Add(unansweredEffectWindow)
			continue
		}
		for n, ingress := range i.ingresses {
			d := s.ledger.addDelivery(fmt.Sprintf("%s-switch-%d-%d", s.runID, number, n), false)
			a, _ := s.sendAndRecord(ctx, d, i.toggledWebhookPath, ingress.url)
			disagrees := a.Status == http.StatusOK && !active ||
				a.Code == "workflow_inactive" && active
			if disagrees && time.Now().After(unknownUntil) {
				contradictions = append(contradictions,
					fmt.Sprintf("%s: %s answered that active is %v; after that %s answered %d %s",
						d.began.Format("15:04:05.000"), e.name, active, ingress.name, a.Status,
						a.Code))
			}
		}
	}
	return contradictions
}

func setToggledWorkflowActive(ctx context.Context, client *apiclient.Client, active bool) error {
	ctx, cancel := context.WithTimeout(ctx, toggleTimeout)
	defer cancel()
	change := client.Deactivate
	if active {
		change = client.Activate
	}
	_, err := change(ctx, toggledWorkflowID)
	return err
}
