// Package api is the operators' API on the wire: what the executor's API and its
// clients send each other, as JSON. Beside the json tags, the fields carry what the
// OpenAPI document says of them.
//
// Absent values are left out or null as each type says. Times are RFC 3339, in UTC.
package api

// List is one page of a list.
type List[T any] struct {
	Items      []T    `json:"items" nullable:"false"`
	NextCursor string `json:"nextCursor" doc:"Sent as cursor, it brings the next page. Empty: this is the last one."`
}

// The bounds of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 200
)
