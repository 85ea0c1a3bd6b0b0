package sqlite

import (
	"context"
	"database/sql"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// AddTokenUses implements store.Store.
func (s *Store) AddTokenUses(ctx context.Context, uses []store.TokenUse) error {
	return s.write(ctx, "add token uses", func(tx *sql.Tx) error {
		return each(ctx, tx, upsertTokenUse, store.StorableTokenUses(uses), func(u store.TokenUse) []any {
			return []any{u.TokenID, u.At.UnixMicro()}
		})
	})
}
