package operate

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// PageOptions selects one page of a list.
type PageOptions struct {
	Limit  int    // maximum number of items; more than 0
	Cursor string // the NextCursor of the previous page; "" for the first page
}

// encodeCursor encodes the kind of a list and the position where a page ended. Clients do not
// interpret the cursor, so its format can change.
func encodeCursor(kind, position string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + ":" + position))
}

// cursorPosition returns the position after which the page begins, or "" for the first page. It
// fails if the cursor is invalid or belongs to a list of another kind.
func (p PageOptions) cursorPosition(kind string) (string, error) {
	if p.Cursor == "" {
		return "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	position, ok := strings.CutPrefix(string(text), kind+":")
	if err != nil || !ok || position == "" {
		return "", invalidCursorError()
	}
	return position, nil
}

func invalidCursorError() error {
	return &edit.InvalidFieldError{Field: "cursor", Problem: "must be a nextCursor of this list"}
}

// newListPage returns a page with the first p.Limit elements of found. item converts an element,
// and position returns its position in the list. If found has more elements, the page has a cursor
// for the next page, made of kind and the position of the page's last element.
func newListPage[R, T any](
	kind string, found []R, p PageOptions, item func(R) T, position func(R) string,
) api.List[T] {
	var page api.List[T]
	if len(found) > p.Limit {
		found = found[:p.Limit]
		page.NextCursor = encodeCursor(kind, position(found[p.Limit-1]))
	}
	page.Items = make([]T, len(found))
	for i, record := range found {
		page.Items[i] = item(record)
	}
	return page
}

// newPageOfCatalog returns one page of the complete list in all. The page begins after the element
// whose ID is in the cursor. newPageOfCatalog returns an error if the list has no such element, or
// if the cursor belongs to a list of another kind.
func newPageOfCatalog[R, T any](
	kind string, all []R, p PageOptions, item func(R) T, id func(R) string,
) (none api.List[T], err error) {
	after, err := p.cursorPosition(kind)
	if err != nil {
		return none, err
	}
	if after != "" {
		last := slices.IndexFunc(all, func(record R) bool { return id(record) == after })
		if last < 0 {
			return none, invalidCursorError()
		}
		all = all[last+1:]
	}
	return newListPage(kind, all, p, item, id), nil
}

// encodeTimePosition encodes a position in a list that is ordered by time and then by the strings
// in rest, which must not contain spaces. Stored times are whole microseconds, so no precision is
// lost.
func encodeTimePosition(at time.Time, rest ...string) string {
	return strconv.FormatInt(at.UnixMicro(), 10) + " " + strings.Join(rest, " ")
}

// cursorTimePosition decodes a cursor whose position is a time followed by the given number of
// other parts, which it returns in rest. A zero time means the first page.
func (p PageOptions) cursorTimePosition(
	kind string, parts int,
) (at time.Time, rest []string, err error) {
	rest = make([]string, parts)
	text, err := p.cursorPosition(kind)
	if err != nil || text == "" {
		return at, rest, err
	}
	split := strings.Split(text, " ")
	micros, err := strconv.ParseInt(split[0], 10, 64)
	if err != nil || len(split) != parts+1 || split[parts] == "" {
		return at, rest, invalidCursorError()
	}
	return time.UnixMicro(micros).UTC(), split[1:], nil
}
