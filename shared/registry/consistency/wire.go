package consistency

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// heartbeatMessage is what a process announces about itself. A message with an echoNumber announces
// nothing: Membership.AwaitInForce publishes such a message and waits until its own process
// receives it, which shows that all earlier messages have arrived.
type heartbeatMessage struct {
	instanceID string
	role       string
	revision   uint64
	serving    bool
	leaving    bool
	echoNumber uint64           // not 0 in a message that a process sends to itself
	settings   *IngressSettings // settings of an ingress; nil for other processes
	info       ProcessInfo
}

// ProcessInfo holds facts about a process that operators need to know before an upgrade or a
// restore.
type ProcessInfo struct {
	// Version is the version of the program. "" means that the program is too old to announce it.
	Version string
	// KeyIDs holds the IDs of the keys that the process can decrypt secrets with.
	KeyIDs []string
	// SchemaVersion is the version of the database schema that an executor uses. 0 means that the
	// process is not an executor, or is too old to announce it.
	SchemaVersion int64
	// Capabilities holds the capabilities of an ingress. It is empty for other processes.
	Capabilities []Capability
}

// IngressSettings holds the settings of an ingress that executors show to operators.
type IngressSettings struct {
	PublicURL         string // "" means not configured
	MaxBodyBytes      int64
	DeliveryIDHeaders []string
	// ProbeKey is the key with which the ingress answers the probes of package probe. Empty means
	// that the ingress is too old for probes.
	ProbeKey []byte
}

// The following functions encode and decode heartbeat messages for NATS. No other file of this
// package depends on the encoding.

func (p heartbeatMessage) encode() ([]byte, error) {
	wire := &hookstartv1.Presence{
		InstanceId:   p.instanceID,
		Role:         p.role,
		Revision:     p.revision,
		Serving:      p.serving,
		Leaving:      p.leaving,
		Echo:         p.echoNumber,
		Version:      p.info.Version,
		KeyIds:       p.info.KeyIDs,
		Schema:       p.info.SchemaVersion,
		Capabilities: capabilityNames(p.info.Capabilities),
	}
	if s := p.settings; s != nil {
		wire.Ingress = &hookstartv1.IngressSettings{
			PublicUrl:         s.PublicURL,
			MaxBodyBytes:      s.MaxBodyBytes,
			DeliveryIdHeaders: s.DeliveryIDHeaders,
			ProbeKey:          s.ProbeKey,
		}
	}
	data, err := proto.Marshal(wire)
	if err != nil {
		return nil, fmt.Errorf("encode the presence: %w", err)
	}
	return data, nil
}

func decodeHeartbeat(data []byte) (heartbeatMessage, error) {
	var wire hookstartv1.Presence
	if err := proto.Unmarshal(data, &wire); err != nil {
		return heartbeatMessage{}, err
	}
	p := heartbeatMessage{
		instanceID: wire.GetInstanceId(), role: wire.GetRole(), revision: wire.GetRevision(),
		serving: wire.GetServing(), leaving: wire.GetLeaving(), echoNumber: wire.GetEcho(),
		info: ProcessInfo{
			Version:       wire.GetVersion(),
			KeyIDs:        wire.GetKeyIds(),
			SchemaVersion: wire.GetSchema(),
			Capabilities:  capabilitiesNamed(wire.GetCapabilities()),
		},
	}
	if s := wire.GetIngress(); s != nil {
		p.settings = &IngressSettings{
			PublicURL:         s.GetPublicUrl(),
			MaxBodyBytes:      s.GetMaxBodyBytes(),
			DeliveryIDHeaders: s.GetDeliveryIdHeaders(),
			ProbeKey:          s.GetProbeKey(),
		}
	}
	return p, nil
}
