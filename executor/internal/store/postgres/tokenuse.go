package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// AddTokenUses implements store.Store.
func (s *Store) AddTokenUses(ctx context.Context, uses []store.TokenUse) error {
	uses = store.StorableTokenUses(uses)
	return s.write(ctx, "add token uses", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, upsertTokenUses, tokenUseArrays(uses)...)
		return err
	})
}
