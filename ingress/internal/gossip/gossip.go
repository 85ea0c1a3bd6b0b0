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
	limits     *admission.Limiter
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
// counted in limits, and the stream space counted in space. It adds what the other ingresses
// announce to limits and space.
func Start(
	nc *nats.Conn, limits *admission.Limiter, space *storage.StreamSpace, registry registryView,
	log logrus.FieldLogger,
) (*UsageExchange, error) {
	g := &UsageExchange{
		nc: nc, instanceID: uuid.NewString(), limits: limits, space: space, registry: registry,
		log:  log,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	var err error
	if g.sub, err = nc.Subscribe(subject, g.receive); err != nil {
		return nil, fmt.Errorf("listen to the other ingresses: %w", err)
	}
	go g.run()
	return g, nil
}

// Stop publishes a last announcement and waits until the exchange has stopped.
func (g *UsageExchange) Stop() {
	close(g.stop)
	<-g.done
	_ = g.sub.Unsubscribe()
}

func (g *UsageExchange) run() {
	defer close(g.done)
	tick := time.NewTicker(announceInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.publishUsage()
		case <-g.space.Announce:
			g.publishUsage()
		case <-g.stop:
			g.publishUsage()
			return
		}
	}
}

func (g *UsageExchange) publishUsage() {
	usage := &hookstartv1.RateUsage{InstanceId: g.instanceID}
	for id, used := range g.limits.DrainUsage() {
		usage.Workflows = append(usage.Workflows, &hookstartv1.WorkflowUsage{
			WorkflowId: id,
			Cost:       int64(used.Cost),
			Each:       int64(used.CostPerRequest),
		})
		if len(usage.GetWorkflows()) == maxUsagesPerMessage {
			g.publish(usage)
			usage.Workflows = usage.Workflows[:0]
		}
	}
	read, stored := g.limits.DrainBytes(), g.space.DrainUnannounced()
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
			g.publish(usage)
			usage.Workflows, usage.Accounts = usage.Workflows[:0], usage.Accounts[:0]
		}
	}
	if len(usage.GetWorkflows())+len(usage.GetAccounts()) > 0 {
		g.publish(usage)
	}
}

func (g *UsageExchange) publish(usage *hookstartv1.RateUsage) {
	data, err := proto.Marshal(usage)
	if err == nil {
		err = g.nc.Publish(subject, data)
	}
	if err != nil {
		g.log.WithError(err).Debug("the admitted requests were not announced to the other " +
			"ingresses")
	}
}

func (g *UsageExchange) receive(msg *nats.Msg) {
	var usage hookstartv1.RateUsage
	if proto.Unmarshal(msg.Data, &usage) != nil || usage.GetInstanceId() == g.instanceID {
		return
	}
	now := time.Now()
	for _, w := range usage.GetWorkflows() {
		if view, ok := g.registry.Lookup(w.GetWorkflowId()); ok && view.Plan != nil {
			used := admission.Usage{
				Cost:           time.Duration(w.GetCost()),
				CostPerRequest: time.Duration(w.GetEach()),
			}
			g.limits.AddRemoteUsage(view.Workflow.ID, used, view.RateLimit(), now)
		}
	}
	for _, a := range usage.GetAccounts() {
		if a.GetStored() != 0 {
			g.space.AddRemoteUsage(a.GetAccountId(), a.GetStored())
		}
		if plan := g.registry.PlanOf(a.GetAccountId()); plan != nil {
			g.limits.AddRemoteBytes(a.GetAccountId(), plan.BytesPerDay, a.GetBytes(), now)
		}
	}
}
