// Package gossip exchanges counts of admitted requests and bytes among ingresses, because the rate
// limits and the limits on bytes apply to all ingresses together.
//
// The package deliberately guarantees little: messages are delivered at most once, and no request
// waits for them. An ingress that receives no messages applies the limits to its own requests only.
package gossip

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"
	"google.golang.org/protobuf/proto"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/storage"
	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

const subject = "hookstart.rate"

// announceInterval is the interval between announcements. The ingresses together may exceed a limit
// by about as many requests and bytes as they admit in this time.
const announceInterval = 100 * time.Millisecond

// maxUsagesPerMessage is the maximum number of entries in a message. It keeps a message well below
// the server's size limit.
const maxUsagesPerMessage = 5000

// UsageExchange announces the usage at this ingress to the other ingresses, and receives their
// announcements, until Stop is called.
type UsageExchange struct {
	nc         *nats.Conn
	instanceID string
	limiter    *admission.Limiter
	space      *storage.StreamSpace
	registry   registryView
	log        logrus.FieldLogger

	sub  *nats.Subscription
	stop chan struct{}
	done chan struct{}
}

// registryView is the part of the registry that gossip reads. It is implemented by
// *registry.Snapshot.
type registryView interface {
	admission.Registry
	PlanOf(accountID string) *registry.Plan
}

// Start begins to exchange usage with the other ingresses. It announces the requests and bytes
// counted in limiter, and the stream space counted in space. It adds what the other ingresses
// announce to limiter and space.
func Start(
	nc *nats.Conn, limiter *admission.Limiter, space *storage.StreamSpace, registry registryView,
	log logrus.FieldLogger,
) (*UsageExchange, error) {
	e := &UsageExchange{
		nc: nc, instanceID: uuid.NewString(), limiter: limiter, space: space, registry: registry,
		log:  log,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	var err error
	if e.sub, err = nc.Subscribe(subject, e.receive); err != nil {
		return nil, fmt.Errorf("listen to the other ingresses: %w", err)
	}
	go e.run()
	return e, nil
}

// Stop publishes a last announcement and waits until the exchange has stopped.
func (e *UsageExchange) Stop() {
	close(e.stop)
	<-e.done
	_ = e.sub.Unsubscribe()
}

func (e *UsageExchange) run() {
	defer close(e.done)
	tick := time.NewTicker(announceInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.publishUsage()
		case <-e.space.Announce:
			e.publishUsage()
		case <-e.stop:
			e.publishUsage()
			return
		}
	}
}

func (e *UsageExchange) publishUsage() {
	usage := &hookstartv1.RateUsage{InstanceId: e.instanceID}
	for id, used := range e.limiter.DrainUsage() {
		usage.Workflows = append(usage.Workflows, &hookstartv1.WorkflowUsage{
			WorkflowId: id,
			Cost:       int64(used.Cost),
			Each:       int64(used.CostPerRequest),
		})
		if len(usage.GetWorkflows()) == maxUsagesPerMessage {
			e.publish(usage)
			usage.Workflows = usage.Workflows[:0]
		}
	}
	read, stored := e.limiter.DrainBytes(), e.space.DrainUnannounced()
	for id := range stored {
		read[id] += 0 // ensures that the account has an entry
	}
	for id, bytes := range read {
		usage.Accounts = append(usage.Accounts, &hookstartv1.AccountUsage{
			AccountId: id,
			Bytes:     bytes,
			Stored:    stored[id],
		})
		if len(usage.GetWorkflows())+len(usage.GetAccounts()) >= maxUsagesPerMessage {
			e.publish(usage)
			usage.Workflows, usage.Accounts = usage.Workflows[:0], usage.Accounts[:0]
		}
	}
	if len(usage.GetWorkflows())+len(usage.GetAccounts()) > 0 {
		e.publish(usage)
	}
}

func (e *UsageExchange) publish(usage *hookstartv1.RateUsage) {
	data, err := proto.Marshal(usage)
	if err == nil {
		err = e.nc.Publish(subject, data)
	}
	if err != nil {
		e.log.WithError(err).Debug("the admitted requests were not announced to the other " +
			"ingresses")
	}
}

func (e *UsageExchange) receive(msg *nats.Msg) {
	var usage hookstartv1.RateUsage
	if proto.Unmarshal(msg.Data, &usage) != nil || usage.GetInstanceId() == e.instanceID {
		return
	}
	now := time.Now()
	for _, w := range usage.GetWorkflows() {
		if view, ok := e.registry.Lookup(w.GetWorkflowId()); ok && view.Plan != nil {
			used := admission.Usage{
				Cost:           time.Duration(w.GetCost()),
				CostPerRequest: time.Duration(w.GetEach()),
			}
			e.limiter.AddRemoteUsage(view.Workflow.ID, used, view.RateLimit(), now)
		}
	}
	for _, a := range usage.GetAccounts() {
		if a.GetStored() != 0 {
			e.space.AddRemoteUsage(a.GetAccountId(), a.GetStored())
		}
		if plan := e.registry.PlanOf(a.GetAccountId()); plan != nil {
			e.limiter.AddRemoteBytes(a.GetAccountId(), plan.BytesPerDay, a.GetBytes(), now)
		}
	}
}
