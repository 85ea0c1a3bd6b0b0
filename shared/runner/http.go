package runner

import "encoding/json"

// HTTPResponse is an output that becomes the complete HTTP response to the request that started the
// execution, if two conditions are met: the trigger node waits for the execution (waitSeconds), and
// it either responds with nothing but the output (raw) or has a sender that shows the response to
// its users, as Slack does. If such a response cannot be sent, the response is a 502 instead. If
// the conditions are not met, an HTTPResponse is an ordinary output.
type HTTPResponse struct {
	// Status is the HTTP status code, 200 to 599. 0 means 200, or 204 if Body is nil and the node's
	// sender expects that.
	Status int
	// Headers are added to the response, except those about the connection or the body's length.
	Headers map[string]string
	// Body is sent unchanged if it is a string, and otherwise as JSON. nil means no body.
	Body any
	// Cookies allows Headers to set cookies. If it is false, Set-Cookie is dropped.
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
