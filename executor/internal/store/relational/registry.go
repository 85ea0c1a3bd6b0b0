package relational

import (
	"context"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var registryCopyTable = table[store.RegistryRecord]{
	name:    "registry_copy",
	columns: "bucket, key, revision, deleted, data",
	fields: func(r *store.RegistryRecord) []any {
		return []any{&r.Bucket, &r.Key, &r.Revision, &r.Deleted, &r.Data}
	},
	onConflict: `ON CONFLICT (bucket, key) DO UPDATE SET revision = excluded.revision,
		deleted = excluded.deleted, data = excluded.data
		WHERE excluded.revision > registry_copy.revision`,
}

// Installation implements store.RegistryCopy.
func (s *Store) Installation(ctx context.Context) (id string, err error) {
	err = s.db.Read(ctx, "installation", func(row Row) error {
		return row.Scan(&id)
	}, `SELECT id FROM installation`)
	return id, err
}

// AdoptInstallation implements store.RegistryCopy.
func (s *Store) AdoptInstallation(ctx context.Context, id string) (inForce string, err error) {
	return write(ctx, s, "adopt installation", func(tx Tx) (inForce string, err error) {
		if _, err := tx.Exec(ctx,
			`INSERT INTO installation (only_one, id) VALUES (1, ?) ON CONFLICT DO NOTHING`,
			store.SanitizeText(id)); err != nil {
			return "", err
		}
		err = tx.Query(ctx, func(row Row) error {
			return row.Scan(&inForce)
		}, `SELECT id FROM installation`)
		return inForce, err
	})
}

// RegistryPosition implements store.RegistryCopy.
func (s *Store) RegistryPosition(
	ctx context.Context, bucket string,
) (at store.RegistryPosition, err error) {
	err = s.db.Read(ctx, "registry position", func(row Row) error {
		return row.Scan(&at.Revision, timeField{&at.At})
	},
		`SELECT revision, at FROM registry_position WHERE bucket = ?`, store.SanitizeText(bucket))
	return at, err
}

// SaveRegistryCopy implements store.RegistryCopy.
func (s *Store) SaveRegistryCopy(
	ctx context.Context, bucket string, records []store.RegistryRecord, entries []store.AuditEntry,
	after uint64, upTo store.RegistryPosition,
) error {
	newest := make(map[string]int, len(records))
	for i, r := range records {
		newest[r.Key] = i
	}
	var kept []store.RegistryRecord
	for i, r := range records {
		if newest[r.Key] == i {
			r.Data = append([]byte{}, r.Data...) // a nil slice would be NULL, which is not allowed
			kept = append(kept, r)
		}
	}
	// Sort by key, so that two executors that write the same records lock them in the same order.
	slices.SortFunc(kept, func(a, b store.RegistryRecord) int {
		return strings.Compare(a.Key, b.Key)
	})
	return s.db.Write(ctx, "keep registry", func(tx Tx) error {
		// Create the bucket's row if it does not exist, and lock it. Concurrent transactions wait
		// until this one has committed, and then read the position that it has written.
		if _, err := tx.Exec(ctx,
			`INSERT INTO registry_position (bucket, revision, at) VALUES (?, 0, ?)
				ON CONFLICT DO NOTHING`,
			store.SanitizeText(bucket), store.StoredTime(upTo.At)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx,
			`UPDATE registry_position SET revision = revision WHERE bucket = ?`,
			store.SanitizeText(bucket)); err != nil {
			return err
		}
		var reached uint64
		if err := tx.Query(ctx, func(row Row) error { return row.Scan(&reached) },
			`SELECT revision FROM registry_position WHERE bucket = ?`,
			store.SanitizeText(bucket)); err != nil {
			return err
		}
		if reached < after {
			return store.ErrRegistryGap
		}
		if err := registryCopyTable.insert(ctx, tx, kept); err != nil {
			return err
		}
		if err := auditTable.insert(ctx, tx, entries); err != nil {
			return err
		}
		revision := store.StoredSequence(upTo.Revision)
		_, err := tx.Exec(ctx,
			`UPDATE registry_position SET revision = ?, at = ? WHERE bucket = ? AND revision < ?`,
			revision, store.StoredTime(upTo.At), store.SanitizeText(bucket), revision)
		return err
	})
}

// RegistryRecords implements store.RegistryCopy.
func (s *Store) RegistryRecords(
	ctx context.Context, bucket, afterKey string, limit int,
) ([]store.RegistryRecord, error) {
	return Collect(ctx, s.db, "registry records", registryCopyTable.scan,
		registryCopyTable.selectClause()+`WHERE bucket = ? AND key > ? ORDER BY key LIMIT ?`,
		store.SanitizeText(bucket), store.SanitizeText(afterKey), max(limit, 0))
}
