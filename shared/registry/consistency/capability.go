package consistency

import "slices"

// Capability is the ability of an ingress to enforce a setting of the registry that older versions
// do not know. An ingress announces all capabilities of its version. An executor refuses to store a
// setting as long as a live ingress lacks the capability for it: see Membership.IngressesWithout.
type Capability string

const (
	// CapabilitySenders is the capability to verify a trigger node's requests according to its
	// sender.
	CapabilitySenders Capability = "senders"
	// CapabilityFilters is the capability to start executions only for the requests that match a
	// trigger node's filter.
	CapabilityFilters Capability = "filters"
	// CapabilitySyncResponses is the capability to delay the response to a request until its
	// execution has finished.
	CapabilitySyncResponses Capability = "answers"
	// CapabilityOrderKeys is the capability to keep executions in order if they belong to the same
	// trigger node and have the same order key.
	CapabilityOrderKeys Capability = "orderKey"
	// CapabilityOwnStreams is the capability to store a queue's start messages in the queue's own
	// stream.
	CapabilityOwnStreams Capability = "ownStreams"
)

// Capabilities returns all capabilities of this version, for an ingress to announce.
func Capabilities() []Capability {
	return []Capability{
		CapabilitySenders,
		CapabilityFilters,
		CapabilitySyncResponses,
		CapabilityOrderKeys,
		CapabilityOwnStreams,
	}
}

// capabilityNames returns the names under which capabilities are announced.
func capabilityNames(capabilities []Capability) []string {
	names := make([]string, len(capabilities))
	for i, c := range capabilities {
		names[i] = string(c)
	}
	return names
}

// capabilitiesNamed returns the capabilities with the given names.
func capabilitiesNamed(names []string) []Capability {
	capabilities := make([]Capability, len(names))
	for i, name := range names {
		capabilities[i] = Capability(name)
	}
	return capabilities
}

// IngressesWithout returns the sorted instance IDs of the live ingresses that lack a capability.
func (r *Membership) IngressesWithout(c Capability) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lacking []string
	for id, m := range r.members {
		if m.role == RoleIngress && m.isAlive() && !slices.Contains(m.info.Capabilities, c) {
			lacking = append(lacking, id)
		}
	}
	slices.Sort(lacking)
	return lacking
}
