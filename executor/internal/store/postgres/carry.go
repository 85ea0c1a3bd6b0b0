package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

const (
	// wideTable is what migration 00023 leaves of the records before it.
	wideTable = "executions_wide"
	// carryAtOnce is how many records one transaction carries over.
	carryAtOnce = 5_000
	// carrying is held by the executor that carries records over, as a lock of its session: when it is killed, the next one goes on.
	carrying relational.Lock = 7_303_014_917_203

	wideRecords = `SELECT id, account_id, workflow_id, node_id, queue, source, status, delivery_id, rerun_of, token_id, accepted_at, recorded_at,
		started_at, finished_at, content_type, body_bytes, stream_sequence, error, output, requeued_as, replay_of, dismissed_at, sender, verified
		FROM ` + wideTable + ` WHERE (accepted_at, id) > ($1, $2) ORDER BY accepted_at, id LIMIT $3`
)

// carry moves what the wide table holds to the narrow one: see relational.Carry. Nobody else writes records meanwhile: executors
// of this version wait for the lock before they open the database, and statements of older ones name columns that are gone.
// Its connection is its own, as that of migrate.
func carry(ctx context.Context, config *pgx.ConnConfig, log logrus.FieldLogger) (err error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if exists, err := hasWide(ctx, conn); err != nil || !exists {
		return err
	}
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(carrying)); err != nil {
		return err
	}
	if exists, err := hasWide(ctx, conn); err != nil || !exists {
		return err
	}
	after, left, err := carriedTo(ctx, conn)
	if err != nil {
		return err
	}
	var known relational.Origins
	return relational.Carry(log, left, after, func(after store.Position) ([]store.Record, error) {
		return carrySome(ctx, conn, &known, after)
	})
}

func hasWide(ctx context.Context, conn *pgx.Conn) (exists bool, err error) {
	err = conn.QueryRow(ctx, `SELECT to_regclass('`+wideTable+`') IS NOT NULL`).Scan(&exists)
	return exists, err
}

// carriedTo is up to where records have been carried over by a process that ended, and how many are left.
func carriedTo(ctx context.Context, conn *pgx.Conn) (at store.Position, left int64, err error) {
	var last *time.Time
	if err := conn.QueryRow(ctx, `SELECT max(accepted_at) FROM executions`).Scan(&last); err != nil {
		return at, 0, err
	}
	at.AcceptedAt = beforeAll
	if last != nil {
		at.AcceptedAt = *last // and all IDs of that time once more
	}
	err = conn.QueryRow(ctx, `SELECT count(*) FROM `+wideTable+` WHERE accepted_at >= $1`, at.AcceptedAt).Scan(&left)
	return at, left, err
}

// beforeAll is before every time that PostgreSQL stores, but the first of them.
var beforeAll = time.Date(-4700, 1, 1, 0, 0, 0, 0, time.UTC)

// carrySome carries over the next records after a position in one transaction, and removes the wide table when there are none.
func carrySome(ctx context.Context, conn *pgx.Conn, known *relational.Origins, after store.Position) (records []store.Record, err error) {
	rows, err := conn.Query(ctx, wideRecords, after.AcceptedAt, after.ID, carryAtOnce)
	if err != nil {
		return nil, err
	}
	if records, err = pgx.CollectRows(rows, scanWide); err != nil {
		return nil, err
	}
	if len(records) == 0 {
		_, err := conn.Exec(ctx, `DROP TABLE `+wideTable)
		return nil, err
	}
	numbers, err := numbersOf(ctx, conn, known, records)
	if err != nil {
		return nil, err
	}
	known.Learn(numbers)
	arrays, short := recordArrays(records, numbers)
	_, err = insertArrays(ctx, conn, arrays, short)
	return records, err
}

func scanWide(row pgx.CollectableRow) (store.Record, error) {
	var r store.Record
	var started, finished, dismissed *time.Time
	err := row.Scan(&r.ID, &r.AccountID, &r.WorkflowID, &r.NodeID, &r.Queue, &r.Source, &r.Status, &r.DeliveryID, &r.RerunOf, &r.TokenID,
		&r.AcceptedAt, &r.RecordedAt, &started, &finished, &r.ContentType, &r.BodyBytes, &r.StreamSequence, &r.Error, &r.Output, &r.RequeuedAs,
		&r.ReplayOf, &dismissed, &r.Sender, &r.Verified)
	for _, optional := range []struct{ from, into *time.Time }{{started, &r.StartedAt}, {finished, &r.FinishedAt}, {dismissed, &r.DismissedAt}} {
		if optional.from != nil {
			*optional.into = *optional.from
		}
	}
	return r, err
}
