package cli

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

// paging holds the flags that select a page of a list.
type paging struct {
	Limit  int    `help:"How many at most, up to 200." default:"50"`
	Cursor string `help:"The nextCursor of the page before (-o json)." placeholder:"CURSOR"`
	All    bool   `help:"All pages."`
}

// Validate returns an error if --limit is out of range. kong calls it after parsing the flags.
func (p *paging) Validate() error {
	if p.Limit < 1 || p.Limit > api.MaxLimit {
		return fmt.Errorf("--limit must be from 1 to %d; --all gets everything", api.MaxLimit)
	}
	return nil
}

func (p *paging) page() apiclient.Page {
	if p.All {
		return apiclient.Page{Limit: api.MaxLimit, Cursor: p.Cursor}
	}
	return apiclient.Page{Limit: p.Limit, Cursor: p.Cursor}
}

// rawResponseItems returns the unmodified items of the API's last response, which must be a page of
// a list.
func (s *session) rawResponseItems() ([]json.RawMessage, error) {
	var page api.List[json.RawMessage]
	if err := json.Unmarshal(s.lastResponseBody, &page); err != nil {
		return nil, fmt.Errorf("read a page: %w", err)
	}
	return page.Items, nil
}

// listFormat describes how to print a list as a table.
type listFormat[T any] struct {
	header    []string
	formatRow func(T) []string
	// emptyListHint is printed for an empty list. It suggests what to do.
	emptyListHint string
}

// printList prints one page of a list, or all pages if --all is set.
func printList[T any](
	s *session, p paging, fetch func(apiclient.Page) (api.List[T], error), format listFormat[T],
) error {
	page, found, merged := p.page(), []T(nil), []json.RawMessage{}
	for {
		part, err := fetch(page)
		if err != nil {
			return err
		}
		found = append(found, part.Items...)
		if p.All && s.jsonOutput {
			items, err := s.rawResponseItems()
			if err != nil {
				return err
			}
			merged = append(merged, items...)
		}
		page.Cursor = part.NextCursor
		if !p.All || page.Cursor == "" {
			break
		}
	}
	if p.All && s.jsonOutput {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(api.List[json.RawMessage]{Items: merged}); err != nil {
			return fmt.Errorf("merge the pages: %w", err)
		}
		return s.printRaw(text.Bytes())
	}
	return s.printResponse(func() error {
		if len(found) == 0 {
			s.printNote("%s", format.emptyListHint)
			return nil
		}
		table := [][]string{format.header}
		for _, item := range found {
			table = append(table, format.formatRow(item))
		}
		if err := s.printRows(table); err != nil {
			return err
		}
		if page.Cursor != "" {
			s.printNote("There are more: --all")
		}
		return nil
	})
}
