package api

import "time"

// PublicURL is the URL at which senders reach the ingresses, and the result of a check.
type PublicURL struct {
	URL             string    `json:"url" doc:"Without /webhooks. Empty: not configured." example:"https://hooks.example.com"`
	OnlyThisMachine bool      `json:"onlyThisMachine" doc:"Its host is localhost, or a loopback address."`
	State           string    `json:"state" enum:"reached,unreachable,redirected,stranger,another,unknown" doc:"reached: an ingress of this installation answered. unreachable: nobody did. redirected: the answer was a redirect. stranger: it was no hookstart's. another: it was another installation's. unknown: nobody could be asked."`
	Detail          string    `json:"detail" doc:"What that means, for people."`
	CheckedAt       time.Time `json:"checkedAt" doc:"An answer is kept for half a minute."`
}

// These are the states of a public URL.
const (
	PublicURLReached     = "reached"     // an ingress of this installation answered
	PublicURLUnreachable = "unreachable" // no server answered
	PublicURLRedirected  = "redirected"
	PublicURLStranger    = "stranger" // another program answered
	PublicURLAnother     = "another"  // another installation answered
	PublicURLUnknown     = "unknown"  // the URL could not be checked
)
