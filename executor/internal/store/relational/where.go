package relational

import (
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Where holds the conditions of a query, combined with AND, and their arguments.
type Where struct {
	terms []string
	Args  []any
}

// Add adds a condition, in which a ? stands for each argument.
func (w *Where) Add(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.Args = append(w.Args, args...)
}

// AddEquals adds the condition that column equals text. It adds nothing if text is "".
func (w *Where) AddEquals(column, text string) {
	if text != "" {
		w.Add(column+` = ?`, store.SanitizeText(text))
	}
}

// AddTimeRange adds conditions on a time column: at or after since, and before until. A zero time
// adds no condition.
func (w *Where) AddTimeRange(column string, since, until time.Time) {
	if !since.IsZero() {
		w.Add(column+` >= ?`, store.CeilTime(since))
	}
	if !until.IsZero() {
		w.Add(column+` < ?`, store.CeilTime(until))
	}
}

// String returns the WHERE clause, or "" if there are no conditions.
func (w *Where) String() string {
	if len(w.terms) == 0 {
		return ""
	}
	return `WHERE ` + strings.Join(w.terms, ` AND `)
}
