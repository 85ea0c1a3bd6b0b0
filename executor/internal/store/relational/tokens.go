package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var tokenUseTable = table[store.TokenUse]{
	name:    "token_uses",
	columns: "token_id, last_used_at",
	fields:  func(u *store.TokenUse) []any { return []any{&u.TokenID, timeField{&u.At}} },
	onConflict: `ON CONFLICT (token_id) DO UPDATE SET last_used_at = excluded.last_used_at
		WHERE excluded.last_used_at > token_uses.last_used_at`,
	backupOrder: "token_id",
	partRows:    func(p *store.BackupPart) *[]store.TokenUse { return &p.TokenUses },
}

// AddTokenUses implements store.TokenUseStore.
func (s *Store) AddTokenUses(ctx context.Context, uses []store.TokenUse) error {
	return s.db.Write(ctx, "add token uses", func(tx Tx) error {
		return tokenUseTable.insert(ctx, tx, store.StorableTokenUses(uses))
	})
}

// TokensLastUsed implements store.TokenUseStore.
func (s *Store) TokensLastUsed(
	ctx context.Context, tokenIDs []string,
) (map[string]time.Time, error) {
	uses, err := Collect(ctx, s.db, "tokens last used", tokenUseTable.scan,
		tokenUseTable.selectClause()+`WHERE token_id = ANY (?)`, store.SanitizeTexts(tokenIDs))
	if err != nil {
		return nil, err
	}
	used := make(map[string]time.Time, len(uses))
	for _, u := range uses {
		used[u.TokenID] = u.At
	}
	return used, nil
}
