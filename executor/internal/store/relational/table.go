package relational

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// table describes a database table. T is the type of its rows.
type table[T any] struct {
	name        string
	columns     string
	fields      func(*T) []any // pointers to the fields for columns, used for reading and writing
	onConflict  string         // the ON CONFLICT clause for a row whose key already exists
	backupOrder string         // the sort order of rows in a backup
	partRows    func(*store.BackupPart) *[]T
}

func (t table[T]) selectClause() string { return `SELECT ` + t.columns + ` FROM ` + t.name + ` ` }

func (t table[T]) scan(row Row) (item T, err error) {
	err = row.Scan(t.fields(&item)...)
	return item, err
}

// insert inserts rows into the table, after converting them to their stored form. t.onConflict
// determines what happens if a row's key already exists.
func (t table[T]) insert(ctx context.Context, tx Tx, rows []T) error {
	if len(rows) == 0 {
		return nil
	}
	values := make([][]any, len(rows))
	for i := range rows {
		values[i] = t.fields(&rows[i])
		for n, field := range values[i] {
			values[i][n] = storedValue(field)
		}
	}
	return tx.Insert(ctx, t.name+` (`+t.columns+`)`, values, t.onConflict)
}

// storedField is a field whose stored form differs from its Go value.
type storedField interface {
	sql.Scanner
	value() any
}

// storedValue returns the stored form of the field that pointer points to.
func storedValue(pointer any) any {
	switch p := pointer.(type) {
	case *string:
		return store.SanitizeText(*p)
	case *int64:
		return *p
	case *uint64:
		return store.StoredSequence(*p)
	case *[]byte:
		return *p
	case storedField:
		return p.value()
	}
	// Unreachable, because the tests insert into every table and would have found a type without a
	// case.
	panic(fmt.Sprintf("relational: a field of the type %T", pointer))
}

// timeField is a field for a time column. Its Scan method accepts a time in the form that either
// database returns: a time.Time, or microseconds since 1970.
type timeField struct{ at *time.Time }

func (m timeField) value() any { return store.StoredTime(*m.at) }

// Scan implements sql.Scanner.
func (m timeField) Scan(from any) error {
	switch v := from.(type) {
	case nil:
		*m.at = time.Time{}
	case time.Time:
		*m.at = v.UTC()
	case int64:
		*m.at = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("%T is not a time", from)
	}
	return nil
}

// intField is a field for an integer column, which pgx returns as an int32 and SQLite as an
// int64.
type intField struct{ n *int }

func (f intField) value() any { return int64(*f.n) }

// Scan implements sql.Scanner.
func (f intField) Scan(from any) error {
	switch v := from.(type) {
	case int64:
		*f.n = int(v)
	case int32: // pgx returns this for a column of type integer
		*f.n = int(v)
	default:
		return fmt.Errorf("%T is not a number", from)
	}
	return nil
}

// nullableTimeField is a field for a time column in which the zero time is stored as NULL.
type nullableTimeField struct{ timeField }

func (o nullableTimeField) value() any {
	if o.at.IsZero() {
		return (*time.Time)(nil)
	}
	at := store.StoredTime(*o.at)
	return &at
}

// OptionalTime is a time argument whose zero value means "never". Drivers store the zero value as
// NULL in PostgreSQL, and as 0 in SQLite, where the column is not nullable.
type OptionalTime time.Time

// optionalTimeField is a field for a time column in which the zero time means never: see
// OptionalTime.
type optionalTimeField struct{ timeField }

func (o optionalTimeField) value() any { return OptionalTime(store.StoredTime(*o.at)) }

// Scan implements sql.Scanner.
func (o optionalTimeField) Scan(from any) error {
	if from == int64(0) {
		from = nil
	}
	return o.timeField.Scan(from)
}

// ExecutionID is an execution ID as a query argument or column value. Drivers convert it to bytes
// with store.EncodeID.
type ExecutionID string

// ExecutionIDs is a list of execution IDs as the argument of "= ANY (?::bytea[])".
type ExecutionIDs []string

type executionIDField struct{ id *string }

func (e executionIDField) value() any { return ExecutionID(store.SanitizeText(*e.id)) }

// Scan implements sql.Scanner.
func (e executionIDField) Scan(from any) error {
	switch v := from.(type) {
	case []byte:
		*e.id = store.DecodeID(v)
	default:
		return fmt.Errorf("%T is not an ID", from)
	}
	return nil
}
