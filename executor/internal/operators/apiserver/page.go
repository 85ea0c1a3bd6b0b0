package apiserver

import "github.com/hookstart/hookstart/executor/internal/operators/operate"

// Paging selects a page of a list. It is exported because huma only fills embedded structs that are
// exported.
type Paging struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"The maximum number of items of the page."`
	Cursor string `query:"cursor" doc:"The nextCursor of the previous page. Absent: the first page."`
}

// AccountFilter selects the items in a list: those of one account, or those of all accounts that
// the caller may see.
type AccountFilter struct {
	AccountID string `query:"accountId" doc:"Selects the items of this account. Absent: the items of all accounts that the caller may see."`
}

// ListInput is the input of most list operations.
type ListInput struct {
	Paging
	AccountFilter
}

func (in Paging) page() operate.PageOptions {
	return operate.PageOptions{Limit: in.Limit, Cursor: in.Cursor}
}
