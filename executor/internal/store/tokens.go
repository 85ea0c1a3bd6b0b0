package store

import (
	"context"
	"slices"
	"strings"
	"time"
)

// TokenUseStore stores when tokens and operators' keys were last used. Recording adds the uses of
// tokens, and the keyring of operate adds the uses of keys. operate and package events read the
// times.
type TokenUseStore interface {
	// TokensLastUsed returns when each token was last used for a webhook request, which is the
	// AcceptedAt of its newest record, even of a rejected request. Tokens that were never used are
	// not in the map. The time outlives the record, so pruning does not make a used token seem
	// unused.
	TokensLastUsed(ctx context.Context, tokenIDs []string) (map[string]time.Time, error)

	// AddTokenUses stores uses that do not appear in any execution's record, such as uses of
	// operators' keys. TokensLastUsed then takes them into account. A use that is older than the
	// stored use of the same token is ignored.
	AddTokenUses(ctx context.Context, uses []TokenUse) error
}

// TokenUse is the most recent use of a token.
type TokenUse struct {
	TokenID string
	At      time.Time // when the token was used
}

// LatestTokenUses returns the most recent use of each token in the records, sorted by token ID.
func LatestTokenUses(records []Record) []TokenUse {
	newest := make(map[string]time.Time)
	for _, r := range records {
		if at, seen := newest[r.TokenID]; r.TokenID != "" && (!seen || r.AcceptedAt.After(at)) {
			newest[r.TokenID] = r.AcceptedAt
		}
	}
	return sortedUses(newest)
}

func sortedUses(newest map[string]time.Time) []TokenUse {
	uses := make([]TokenUse, 0, len(newest))
	for token, at := range newest {
		uses = append(uses, TokenUse{token, at})
	}
	slices.SortFunc(uses, func(a, b TokenUse) int { return strings.Compare(a.TokenID, b.TokenID) })
	return uses
}

// StorableTokenUses returns the most recent use of each token in stored form. It sorts them by
// token ID, so that two concurrent writers cannot deadlock.
func StorableTokenUses(uses []TokenUse) []TokenUse {
	newest := make(map[string]time.Time, len(uses))
	for _, u := range uses {
		if at := StoredTime(u.At); at.After(newest[SanitizeText(u.TokenID)]) {
			newest[SanitizeText(u.TokenID)] = at
		}
	}
	return sortedUses(newest)
}
