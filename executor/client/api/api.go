// Package api has the types of the operators' API: the JSON that the executor and its clients
// exchange, with the descriptions for the OpenAPI document.
//
// Each type says whether absent values are omitted or null. Times are RFC 3339, in UTC.
package api

// List is one page of a list.
type List[T any] struct {
	Items      []T    `json:"items" nullable:"false"`
	NextCursor string `json:"nextCursor" doc:"The cursor of the next page. Empty: this is the last page."`
}

// These are the bounds of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 200
)
