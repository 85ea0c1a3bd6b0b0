// Package api contains the types of the operators' API: the JSON that the executor and its clients
// exchange, with the descriptions for the OpenAPI document.
//
// A field's doc tag says what the field holds and what its absence means; a field without such a
// tag has a comment instead. An absent value is the field's zero value in Go. Times are RFC 3339,
// in UTC. States, roles and codes are plain strings, with constants for their values: a client must
// accept values that later versions add.
package api

// PathPrefix is the beginning of the path of every request to the operators' API.
const PathPrefix = "/api/v1"

// List is one page of a list.
type List[T any] struct {
	// Items holds the items of the page, in the order of the list. It is never null.
	Items      []T    `json:"items" nullable:"false"`
	NextCursor string `json:"nextCursor" doc:"The cursor of the next page. Empty: this page is the last one."`
}

// The default and the maximum number of items on a page.
const (
	DefaultLimit = 50
	MaxLimit     = 200
)
