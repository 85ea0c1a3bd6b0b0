package relational

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// OriginRowIDs holds the row numbers of an origin and of its workflow in the dimension tables.
type OriginRowIDs struct{ Workflow, Origin int64 }

// maxCachedOrigins is the maximum number of origins that a process caches. When it is exceeded, the
// cache is emptied.
const maxCachedOrigins = 100_000

// OriginCache caches origins with their row numbers. Entries never become outdated on the same
// server, because rows of the dimension tables are never changed or deleted. It is safe for
// concurrent use.
type OriginCache struct {
	mu             sync.RWMutex
	generation     uint64 // how often the cache was cleared
	rowIDsByOrigin map[store.Origin]OriginRowIDs
	originsByRowID map[int64]store.Origin
}

// Generation returns a number that changes whenever the cache is cleared.
func (o *OriginCache) Generation() uint64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.generation
}

// Find returns the row numbers of an origin. known is false if the origin is not cached.
func (o *OriginCache) Find(origin store.Origin) (n OriginRowIDs, known bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	n, known = o.rowIDsByOrigin[origin]
	return n, known
}

// Add caches origins whose rows have been committed. generation is the result of Generation from
// before any of the row numbers were read. If the cache has been cleared since, Add caches nothing
// and returns false: some of the row numbers may be those of another server.
func (o *OriginCache) Add(
	generation uint64, committed map[store.Origin]OriginRowIDs,
) (added bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if generation != o.generation {
		return false
	}
	if o.rowIDsByOrigin == nil || len(o.rowIDsByOrigin)+len(committed) > maxCachedOrigins {
		o.rowIDsByOrigin = make(map[store.Origin]OriginRowIDs)
	}
	maps.Copy(o.rowIDsByOrigin, committed)
	return true
}

// Clear empties the cache. Call it when the store may be connected to another server: a server that
// has taken over may lack the latest rows of the dimension tables, and may give their numbers to
// other origins.
func (o *OriginCache) Clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.generation++
	o.rowIDsByOrigin, o.originsByRowID = nil, nil
}

// queryFunc is a function that runs a query, on a database or in a transaction, and passes each row
// of the result to a callback.
type queryFunc = func(ctx context.Context, row func(Row) error, query string, args ...any) error

// maxOriginReads is how often the row numbers of origins are read again because the cache was
// cleared meanwhile.
const maxOriginReads = 3

// LoadByRowIDs returns the origins with the given row numbers. It reads origins that are not cached
// from the database, and caches them.
func (o *OriginCache) LoadByRowIDs(
	ctx context.Context, read queryFunc, numbers []int64,
) (found map[int64]store.Origin, err error) {
	for range maxOriginReads {
		var current bool
		if found, current, err = o.tryLoadByRowIDs(ctx, read, numbers); err != nil || current {
			break
		}
	}
	return found, err
}

// tryLoadByRowIDs does the same as LoadByRowIDs. current is false if the cache was cleared
// meanwhile: the origins from the cache may then be those of another server.
func (o *OriginCache) tryLoadByRowIDs(
	ctx context.Context, read queryFunc, numbers []int64,
) (found map[int64]store.Origin, current bool, err error) {
	generation := o.Generation()
	found, missing := o.cachedByRowIDs(numbers)
	if len(missing) == 0 {
		return found, true, nil
	}
	if err := read(ctx, func(row Row) error {
		var number int64
		var origin store.Origin
		err := row.Scan(&number, &origin.WorkflowID, &origin.NodeID, &origin.AccountID,
			&origin.Queue,
			&origin.Source, &origin.TokenID, &origin.Sender, &origin.Verified)
		found[number] = origin
		return err
	},
		`SELECT o.origin, w.workflow_id, o.node_id, o.account_id, o.queue, o.source, o.token_id,
			o.sender, o.verified
		FROM origins o JOIN workflows w USING (workflow)
		WHERE o.origin = ANY (?)`, missing); err != nil {
		return nil, false, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if generation != o.generation {
		return found, false, nil
	}
	if o.originsByRowID == nil || len(o.originsByRowID)+len(found) > maxCachedOrigins {
		o.originsByRowID = make(map[int64]store.Origin)
	}
	maps.Copy(o.originsByRowID, found)
	return found, true, nil
}

// cachedByRowIDs returns the cached origins with the given numbers, and the numbers that are not
// cached.
func (o *OriginCache) cachedByRowIDs(numbers []int64) (found map[int64]store.Origin,
	missing []int64,
) {
	found = make(map[int64]store.Origin)
	unknown := make(map[int64]bool)
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, number := range numbers {
		if _, have := found[number]; have || unknown[number] {
			continue
		}
		if origin, ok := o.originsByRowID[number]; ok {
			found[number] = origin
		} else {
			unknown[number] = true
			missing = append(missing, number)
		}
	}
	return found, missing
}

// fillOrigins sets the fields of each record that belong to its origin. numbers holds the row
// numbers of the records' origins. fillOrigins uses the cache, because a lookup there is cheaper
// than a join.
func (o *OriginCache) fillOrigins(
	ctx context.Context, read queryFunc, records []store.Record, numbers []int64,
) error {
	named, err := o.LoadByRowIDs(ctx, read, numbers)
	if err != nil {
		return err
	}
	for i, number := range numbers {
		origin, ok := named[number]
		if !ok {
			return fmt.Errorf("the record %s has the origin %d, which is not there", records[i].ID,
				number)
		}
		r := &records[i]
		r.AccountID, r.WorkflowID, r.NodeID, r.Queue = origin.AccountID, origin.WorkflowID,
			origin.NodeID,
			origin.Queue
		r.Source, r.TokenID, r.Sender, r.Verified = origin.Source, origin.TokenID, origin.Sender,
			origin.Verified
	}
	return nil
}
