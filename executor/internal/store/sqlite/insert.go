package sqlite

import (
	"context"
	"database/sql"
	"runtime"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// recordsPerInsert is the number of records that one INSERT statement adds. Each statement has a
// fixed cost, so inserting many records with one statement is cheaper.
const recordsPerInsert = 50

// inserter inserts records in one of two forms: the short form has the columns in shortFormColumns,
// and the long form has those in fullFormColumns.
type inserter struct {
	columns string
	width   int // number of columns
	append  func(
		values []any, r store.Record, numbers relational.OriginRowIDs, computed bool,
	) []any
}

var (
	shortColumnsInserter = inserter{shortFormColumns, shortColumnCount, appendShortFormColumns}
	allColumnsInserter   = inserter{fullFormColumns, fullFormColumnCount, appendFullFormColumns}
)

// insert inserts records in order and returns how many were new. It leaves records with an existing
// ID unchanged.
func (i inserter) insert(ctx context.Context, tx *sql.Tx, rows []any) (inserted int64, err error) {
	return execRows(ctx, tx, rows, i.width, func(values string) string {
		// OR ROLLBACK: an error ends the transaction anyway, so SQLite need not keep a copy of each
		// page to undo just this statement.
		return `INSERT OR ROLLBACK INTO executions (` + i.columns + `) VALUES ` + values +
			` ON CONFLICT (id) DO NOTHING`
	})
}

// execRows runs a statement for rows, which is a flat list of values with width values per row.
// statement returns the text of the statement for a VALUES list. execRows returns the number of
// table rows that changed.
func execRows(
	ctx context.Context, tx *sql.Tx, rows []any, width int, statement func(values string) string,
) (changed int64, err error) {
	row := placeholders(width)
	for _, size := range []int{recordsPerInsert, 1} {
		whole := len(rows) / (size * width) * size * width
		n, err := execRowsOfSize(ctx, tx, rows[:whole], size*width,
			statement(strings.Repeat(row+", ", size-1)+row))
		if err != nil {
			return 0, err
		}
		changed, rows = changed+n, rows[whole:]
	}
	return changed, nil
}

// placeholders returns the placeholders for one row of width values: "(?, ?, ?)" if width is 3.
func placeholders(width int) string { return "(" + strings.Repeat("?, ", width-1) + "?)" }

// execRowsOfSize runs a statement that has size placeholders, once for every size values. The
// number of values must be a multiple of size. It returns the number of table rows that changed.
func execRowsOfSize(
	ctx context.Context, tx *sql.Tx, values []any, size int, statement string,
) (changed int64, err error) {
	if len(values) == 0 {
		return 0, nil
	}
	prepared, err := tx.PrepareContext(ctx, statement)
	if err != nil {
		return 0, err
	}
	defer func() { _ = prepared.Close() }()
	for chunk := range slices.Chunk(values, size) {
		result, err := prepared.ExecContext(ctx, chunk...)
		if err != nil {
			return 0, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		changed += n
		// Yield after each statement. The SQLite engine is Go code in this process: without
		// yielding, this goroutine could occupy its processor (P) for the whole batch, and requests
		// to an ingress in the same process would have to wait.
		runtime.Gosched()
	}
	return changed, nil
}

// insertRecords inserts the records whose IDs do not exist yet, and returns how many it inserted.
func insertRecords(
	ctx context.Context, tx *sql.Tx, known *originLookup, records []store.Record,
) (inserted int64, err error) {
	shorts, longs := make([]any, 0, len(records)*shortColumnCount), []any(nil)
	for _, r := range records {
		numbers, err := known.findOrAdd(ctx, tx, r.Origin())
		if err != nil {
			return 0, err
		}
		computed := r.HasIDFromDelivery()
		if relational.FitsShortForm(r, computed) {
			shorts = shortColumnsInserter.append(shorts, r, numbers, computed)
		} else {
			longs = allColumnsInserter.append(longs, r, numbers, computed)
		}
	}
	ofShort, err := shortColumnsInserter.insert(ctx, tx, shorts)
	if err != nil {
		return 0, err
	}
	ofLong, err := allColumnsInserter.insert(ctx, tx, longs)
	return ofShort + ofLong, err
}

// InsertNew implements relational.Tx.
func (tx *transaction) InsertNew(
	ctx context.Context, records []store.Record,
) (inserted []store.Record, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	var last int64
	if err := tx.QueryRowContext(ctx,
		`SELECT coalesce(max(seq), 0) FROM executions`).Scan(&last); err != nil {
		return nil, err
	}
	n, err := insertRecords(ctx, tx.Tx, tx.origins, records)
	if err != nil {
		return nil, err
	}
	if n == int64(len(records)) {
		return records, nil
	}
	if inserted, err = filterInserted(ctx, tx, records, last); err != nil {
		return nil, err
	}
	repeats := store.AlreadyRecorded(records, inserted)
	err = execEach(ctx, tx.Tx, updateSequence, repeats, func(r store.Record) []any {
		sequence := store.StoredSequence(r.StreamSequence)
		return []any{sequence, store.EncodeID(r.ID), sequence}
	})
	return inserted, err
}

// filterInserted returns those of the given records that were inserted. Their rows have a seq
// greater than last, which was the greatest seq before the insertion. Of two records with the same
// ID, filterInserted returns only the first.
func filterInserted(
	ctx context.Context, tx *transaction, records []store.Record, last int64,
) (inserted []store.Record, err error) {
	fresh := make(map[string]bool)
	if err := eachRow(ctx, tx, func(row relational.Row) error {
		var id []byte
		err := row.Scan(&id)
		fresh[store.DecodeID(id)] = true
		return err
	}, `SELECT id FROM executions WHERE seq > ?`, last); err != nil {
		return nil, err
	}
	return store.TakeInserted(records, fresh), nil
}
