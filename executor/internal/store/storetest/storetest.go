// Package storetest is the test suite that every store driver must pass. It checks every sentence
// of the contract in package store.
package storetest

import (
	"context"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// TestStore tests a single store. open returns a store with an empty database, which the suite
// closes.
func TestStore(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	groups := map[string]map[string]func(*testing.T, store.Store){
		"apply":        applyTests,
		"progress":     progressTests,
		"pending":      pendingStepTests,
		"lost":         lostExecutionTests,
		"list":         listTests,
		"count":        countByTimeTests,
		"duplicates":   duplicateTests,
		"counts":       refusalCountTests,
		"tokens":       tokenTests,
		"senders":      senderTests,
		"filtered":     filteredRequestTests,
		"put aside":    asideMessageTests,
		"dead letters": deadLetterTests,
		"prune":        pruneTests,
		"audit":        auditTests,
		"sessions":     sessionTests,
		"registry":     registryTests,
		"values":       valueTests,
		"decided":      handledRangeTests,
		"context":      contextTests,
		"events":       eventTests,
		"size":         sizeTests,
		"concurrent":   concurrentTests,
	}
	for group, tests := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, closeAtEnd(t, open(t)))
				})
			}
		})
	}
}

// TestSharedDatabase tests several stores that share one database. create creates an empty database
// and returns the function open, which opens that database as a separate process would.
func TestSharedDatabase(
	t *testing.T, create func(t *testing.T) (open func(ctx context.Context) (store.Store, error)),
) {
	t.Helper()
	for name, test := range sharedDatabaseTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, create(t))
		})
	}
}

// closeAtEnd closes a store when the test ends, and returns it.
func closeAtEnd(t *testing.T, s store.Store) store.Store {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}
