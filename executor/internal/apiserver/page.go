package apiserver

import (
	"encoding/base64"
	"strings"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/shared/registry"
)

// Paging says which page of a list is wanted. It is exported, as everything that is
// embedded into an input, because huma fills only what is.
type Paging struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"How many items at most."`
	Cursor string `query:"cursor" doc:"The nextCursor of the page before. Absent: the first page."`
}

func (in Paging) page() operate.Page { return operate.Page{Limit: in.Limit, Cursor: in.Cursor} }

// A cursor is opaque to clients, so that it can change: the kind of list and where in it
// the page before ended.
func cursor(kind, position string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + ":" + position))
}

// after is where the page begins: after that position, "" for the first page.
func (in Paging) after(kind string) (string, error) {
	if in.Cursor == "" {
		return "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(in.Cursor)
	position, found := strings.CutPrefix(string(text), kind+":")
	if err != nil || !found || position == "" {
		return "", badCursor()
	}
	return position, nil
}

func badCursor() error {
	return &registry.InvalidError{Field: "cursor", Problem: "must be a nextCursor of this list"}
}

// page is one page of found, which has one item more than limit if there are further
// ones.
func page[R, T any](kind string, found []R, limit int, item func(R) T, position func(R) string) *listOutput[T] {
	out := &listOutput[T]{}
	if len(found) > limit {
		found = found[:limit]
		out.Body.NextCursor = cursor(kind, position(found[limit-1]))
	}
	out.Body.Items = make([]T, len(found))
	for i, one := range found {
		out.Body.Items[i] = item(one)
	}
	return out
}

type listOutput[T any] struct {
	Body api.List[T]
}
