package consistency

import "slices"

// Capability is the ability of an ingress to enforce a setting of the registry that ingresses of
// earlier versions cannot enforce. An ingress announces all capabilities of its version. An
// executor stores no setting whose capability a live ingress lacks: see Membership.Lacking.
type Capability string

const (
	// Senders is the capability to verify the requests of a trigger node by its sender.
	Senders Capability = "senders"
	// Filters is the capability to start executions only for the requests that match the filter of
	// a trigger node.
	Filters Capability = "filters"
	// Answers is the capability to answer a request when its execution has ended.
	Answers Capability = "answers"
	// OrderKeys is the capability to give the executions of a trigger node an order, by its order
	// key.
	OrderKeys Capability = "orderKey"
	// OwnStreams is the capability to store the starts of a queue in the queue's own stream.
	OwnStreams Capability = "ownStreams"
)

// Capabilities returns the capabilities of an ingress of this version.
func Capabilities() []Capability {
	return []Capability{Senders, Filters, Answers, OrderKeys, OwnStreams}
}

// namesOf returns the names of capabilities in the form in which they are announced.
func namesOf(capabilities []Capability) []string {
	names := make([]string, len(capabilities))
	for i, c := range capabilities {
		names[i] = string(c)
	}
	return names
}

// named returns the capabilities with these names.
func named(names []string) []Capability {
	capabilities := make([]Capability, len(names))
	for i, name := range names {
		capabilities[i] = Capability(name)
	}
	return capabilities
}

// Lacking returns the instance IDs of the live ingresses that lack a capability, in order.
func (r *Membership) Lacking(c Capability) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lacking []string
	for id, m := range r.members {
		if m.role == RoleIngress && m.isAlive() && !slices.Contains(m.about.Can, c) {
			lacking = append(lacking, id)
		}
	}
	slices.Sort(lacking)
	return lacking
}
