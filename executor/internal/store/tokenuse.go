package store

import (
	"slices"
	"strings"
	"time"
)

// TokenUse is the most recent use of a token.
type TokenUse struct {
	TokenID string
	At      time.Time
}

// TokenUses returns the most recent use of each token in the records, sorted by token ID.
func TokenUses(records []Record) []TokenUse {
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
