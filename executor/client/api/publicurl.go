package api

import "time"

// PublicURL is the URL at which senders reach the ingresses, and the result of checking it.
type PublicURL struct {
	URL             string    `json:"url" doc:"The public URL of the ingresses, without /webhooks. Empty: none is configured." example:"https://hooks.example.com"`
	OnlyThisMachine bool      `json:"onlyThisMachine" doc:"Whether the host is localhost or a loopback address, which other machines cannot reach."`
	State           string    `json:"state" enum:"reached,unreachable,redirected,stranger,another,unknown" doc:"reached: an ingress of this installation answered. unreachable: there was no answer. redirected: the answer was a redirect. stranger: the answer did not come from hookstart. another: the answer came from another installation. unknown: the check was not possible."`
	Detail          string    `json:"detail" doc:"A text for people that explains the state."`
	CheckedAt       time.Time `json:"checkedAt" doc:"When the URL was checked. A result is kept for 30 seconds."`
}

// States of a public URL.
const (
	PublicURLReached     = "reached"     // an ingress of this installation answered
	PublicURLUnreachable = "unreachable" // no server answered
	PublicURLRedirected  = "redirected"
	PublicURLStranger    = "stranger" // another program answered
	PublicURLAnother     = "another"  // another installation answered
	PublicURLUnknown     = "unknown"  // the URL could not be checked
)
