package api

import "time"

// PublicURL is where senders reach the ingresses, and what was found there.
type PublicURL struct {
	URL             string    `json:"url" doc:"Without /webhooks. Empty: nobody has said." example:"https://hooks.example.com"`
	OnlyThisMachine bool      `json:"onlyThisMachine" doc:"Its host is localhost, or a loopback address."`
	State           string    `json:"state" enum:"reached,unreachable,redirected,stranger,another,unknown" doc:"reached: an ingress of this installation answered. unreachable: nobody did. redirected: the answer was a redirect. stranger: it was no hookstart's. another: it was another installation's. unknown: nobody could be asked."`
	Detail          string    `json:"detail" doc:"What that means, for people."`
	CheckedAt       time.Time `json:"checkedAt" doc:"An answer is kept for half a minute."`
}

// PublicURLReached is the state of a public URL that leads where it should.
const PublicURLReached = "reached"
