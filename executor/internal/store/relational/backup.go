package relational

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// backupTable reads the rows of a table for a backup, and writes the rows of a backup to the table.
type backupTable interface {
	backUp(ctx context.Context, from Snapshot, parts *store.BackupWriter) error
	restore(ctx context.Context, tx Tx, part *store.BackupPart) error
}

// backupTables returns the tables that a backup contains, in order, except for the executions
// table, whose records come first.
func (s *Store) backupTables() []backupTable {
	return []backupTable{
		duplicateCountTable, appliedReportTable, tokenUseTable,
		minuteTable{},
		refusalTable, senderActivityTable, filteredSummaryTable, auditTable, asideMessageTable,
		pendingProgressTable,
	}
}

func (t table[T]) backUp(ctx context.Context, from Snapshot, parts *store.BackupWriter) error {
	return ForEachRowInPages(ctx, from, t.scan, func(item T) error {
		return parts.Add(t.rowSize(item), func(p *store.BackupPart) {
			*t.partRows(p) = append(*t.partRows(p), item)
		})
	}, t.selectClause()+`ORDER BY `+t.backupOrder)
}

func (t table[T]) restore(ctx context.Context, tx Tx, part *store.BackupPart) error {
	return t.insert(ctx, tx, *t.partRows(part))
}

// rowSize returns the approximate size of a row in a backup, in bytes.
func (t table[T]) rowSize(item T) (bytes int) {
	for _, field := range t.fields(&item) {
		switch value := field.(type) {
		case *string:
			bytes += len(*value)
		case *[]byte:
			bytes += len(*value)
		}
	}
	return bytes
}

// minuteTable is the table of per-minute counts. It has a type of its own because it is read and
// written differently from other tables.
type minuteTable struct{}

func (minuteTable) backUp(ctx context.Context, from Snapshot, parts *store.BackupWriter) error {
	return ForEachRowInPages(ctx, from, scanMinute, func(c store.MinuteCount) error {
		return parts.Add(0, func(p *store.BackupPart) { p.Minutes = append(p.Minutes, c) })
	}, selectMinutes+groupByMinute)
}

func (minuteTable) restore(ctx context.Context, tx Tx, part *store.BackupPart) error {
	return tx.AddMinutes(ctx, part.Minutes)
}

// ForEachRowInPages passes every row of a query's result to the callback each. The callback may
// take any amount of time, because no query is in progress while it runs: see
// Snapshot.QueryInPages.
func ForEachRowInPages[T any](
	ctx context.Context, from Snapshot, scan func(Row) (T, error), each func(T) error, query string,
) error {
	var page []T
	return from.QueryInPages(ctx, func(row Row) error {
		item, err := scan(row)
		page = append(page, item)
		return err
	}, func() error {
		for _, item := range page {
			if err := each(item); err != nil {
				return err
			}
		}
		page = page[:0]
		return nil
	}, query)
}

// Backup implements store.Backups.
func (s *Store) Backup(ctx context.Context, write func(store.BackupPart) error) error {
	var refused error // the error returned by write, if any
	parts := store.NewBackupWriter(func(part store.BackupPart) error {
		refused = write(part)
		return refused
	})
	err := s.db.Snapshot(ctx, "backup", func(from Snapshot) error {
		if err := s.backUpRecords(ctx, from, parts); err != nil {
			return err
		}
		for _, table := range s.backupTables() {
			if err := table.backUp(ctx, from, parts); err != nil {
				return err
			}
		}
		return parts.Flush()
	})
	if refused != nil {
		return refused
	}
	return err
}

// Restore implements store.Backups.
func (s *Store) Restore(ctx context.Context, part store.BackupPart) error {
	part = part.Sanitized()
	if err := s.db.EnsureOrigins(ctx, "restore", part.Records); err != nil {
		return err
	}
	return s.db.Write(ctx, "restore", func(tx Tx) error {
		if _, err := tx.InsertNew(ctx, part.Records); err != nil {
			return err
		}
		for _, table := range s.backupTables() {
			if err := table.restore(ctx, tx, &part); err != nil {
				return err
			}
		}
		return nil
	})
}

// IsEmpty implements store.Backups.
func (s *Store) IsEmpty(ctx context.Context) (empty bool, err error) {
	err = s.db.Read(ctx, "is empty", func(row Row) error { return row.Scan(&empty) },
		`SELECT NOT EXISTS (SELECT 1 FROM executions) AND NOT EXISTS (SELECT 1 FROM minutes
			WHERE kind = ?)`, store.KindAccepted)
	return empty, err
}
