package runner

import "encoding/json"

// HTTPResponse is an output that is the whole answer to the request which started the execution. It
// has this effect if the trigger node has an answer that waits and is raw, or a sender that shows
// the answer; otherwise it is an output like any other. An HTTPResponse that cannot be sent is
// answered 502.
type HTTPResponse struct {
	// Status is 200 to 599. 0 means 200.
	Status int
	// Headers are set in the answer, except those about the connection or the length of the body.
	Headers map[string]string
	// Body is sent as it is if it is a string, and as JSON otherwise. nil means no body.
	Body any
	// Cookies allows Headers to set cookies. Without it, Set-Cookie is left out.
	Cookies bool
}

// MarshalJSON implements json.Marshaler.
func (h HTTPResponse) MarshalJSON() ([]byte, error) {
	type members struct {
		Status  int               `json:"status,omitempty"`
		Headers map[string]string `json:"headers,omitempty"`
		Body    any               `json:"body,omitempty"`
		Cookies bool              `json:"cookies,omitempty"`
	}
	return json.Marshal(map[string]members{"http": members(h)})
}
