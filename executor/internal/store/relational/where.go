package relational

import (
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Where are the conditions of a query, of which all must hold, and their arguments.
type Where struct {
	terms []string
	Args  []any
}

// Add adds a condition, with a ? for each argument.
func (w *Where) Add(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.Args = append(w.Args, args...)
}

// Is asks for a text in a column, unless it is "".
func (w *Where) Is(column, text string) {
	if text != "" {
		w.Add(column+` = ?`, store.Text(text))
	}
}

// Between asks for a time in a column that is not before one and before another one, where those are not zero.
func (w *Where) Between(column string, since, until time.Time) {
	if !since.IsZero() {
		w.Add(column+` >= ?`, store.Bound(since))
	}
	if !until.IsZero() {
		w.Add(column+` < ?`, store.Bound(until))
	}
}

// String is the clause WHERE, and "" without a condition.
func (w *Where) String() string {
	if len(w.terms) == 0 {
		return ""
	}
	return `WHERE ` + strings.Join(w.terms, ` AND `)
}
