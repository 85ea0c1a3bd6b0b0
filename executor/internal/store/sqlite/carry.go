package sqlite

import (
	"context"
	"database/sql"

	"github.com/sirupsen/logrus"
	sqlitecode "modernc.org/sqlite/lib"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// wideTable is what migration 00020 leaves of the records before it.
const wideTable = "executions_wide"

// carryAtOnce is how many records one transaction carries over.
const carryAtOnce = 2_000

// carry moves what the wide table holds to the narrow one: see relational.Carry.
func carry(ctx context.Context, db *sql.DB, log logrus.FieldLogger) error {
	var total int64
	exists, err := hasTable(ctx, db, wideTable)
	if err != nil || !exists {
		return err
	}
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM `+wideTable).Scan(&total); err != nil {
		return err
	}
	columns, err := wideColumns(ctx, db)
	if err != nil {
		return err
	}
	var known relational.Origins
	return relational.Carry(log, total, store.Position{}, func(after store.Position) (records []store.Record, err error) {
		for {
			records, err = carryNext(ctx, db, &lookup{known: &known}, columns, after)
			if primaryCode(err) != sqlitecode.SQLITE_BUSY || ctx.Err() != nil {
				return records, err
			}
			// The one that comes second can find no gap between the other one's transactions for all of busyTimeout.
			log.Info("another process writes to the database, perhaps to make the records narrow, too; this one waits for it")
		}
	})
}

// carryNext carries over the next records after a position, and returns them. After the last ones, it drops the wide table.
func carryNext(ctx context.Context, db *sql.DB, known *lookup, columns string, after store.Position) (records []store.Record, err error) {
	err = transact(ctx, db, func(tx *sql.Tx) error {
		if exists, err := hasTable(ctx, tx, wideTable); err != nil || !exists {
			return err
		}
		if records, err = wideRecords(ctx, tx, columns, after); err != nil {
			return err
		}
		if len(records) == 0 {
			_, err := tx.ExecContext(ctx, `DROP TABLE `+wideTable)
			return err
		}
		_, err := insertRecords(ctx, tx, known, records)
		return err
	})
	if err == nil {
		known.commit()
	}
	return records, err
}

func hasTable(ctx context.Context, db querier, name string) (exists bool, err error) {
	err = db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?)`, name).Scan(&exists)
	return exists, err
}

// wideColumns are the columns of the wide table that wideRecords reads. Those that came last may be missing.
func wideColumns(ctx context.Context, db *sql.DB) (columns string, err error) {
	columns = `id, account_id, workflow_id, node_id, queue, source, status, delivery_id, rerun_of, token_id,
		accepted_at, recorded_at, started_at, finished_at, content_type, body_bytes, stream_sequence, error, output, requeued_as,
		replay_of, dismissed_at`
	for _, late := range []struct{ name, none string }{{"sender", "''"}, {"verified", "0"}} {
		var exists bool
		if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM pragma_table_info(?) WHERE name = ?)`, wideTable, late.name).Scan(&exists); err != nil {
			return "", err
		}
		if exists {
			columns += ", " + late.name
		} else {
			columns += ", " + late.none
		}
	}
	return columns, nil
}

// wideRecords are the next records of the wide table after a position.
func wideRecords(ctx context.Context, tx *sql.Tx, columns string, after store.Position) (records []store.Record, err error) {
	query, args := `SELECT `+columns+` FROM `+wideTable, []any{}
	if after != (store.Position{}) {
		query, args = query+` WHERE (accepted_at, id) > (?, ?)`, append(args, after.AcceptedAt.UnixMicro(), after.ID)
	}
	err = eachRow(ctx, tx, func(row relational.Row) error {
		r, err := scanWide(row)
		records = append(records, r)
		return err
	}, query+` ORDER BY accepted_at, id LIMIT ?`, append(args, carryAtOnce)...)
	return records, err
}

func scanWide(row relational.Row) (store.Record, error) {
	var (
		r                            store.Record
		accepted, recorded           int64
		started, finished, dismissed sql.NullInt64
	)
	err := row.Scan(&r.ID, &r.AccountID, &r.WorkflowID, &r.NodeID, &r.Queue, &r.Source, &r.Status, &r.DeliveryID, &r.RerunOf, &r.TokenID,
		&accepted, &recorded, &started, &finished, &r.ContentType, &r.BodyBytes, &r.StreamSequence, &r.Error, &r.Output, &r.RequeuedAs,
		&r.ReplayOf, &dismissed, &r.Sender, &r.Verified)
	r.AcceptedAt, r.RecordedAt = fromMicros(accepted), fromMicros(recorded)
	if started.Valid {
		r.StartedAt = fromMicros(started.Int64)
	}
	if finished.Valid {
		r.FinishedAt = fromMicros(finished.Int64)
	}
	if dismissed.Valid {
		r.DismissedAt = fromMicros(dismissed.Int64)
	}
	return r, err
}
