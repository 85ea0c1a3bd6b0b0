package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// numbers are those of an origin in the dictionaries.
type numbers struct{ workflow, origin int64 }

// maxRemembered bounds how many origins a process remembers. Past it, it begins anew.
const maxRemembered = 100_000

// origins are the numbers that this process knows; rows of the dictionaries are never changed or deleted. It is safe for
// concurrent use.
type origins struct {
	mu        sync.RWMutex
	committed map[store.Origin]numbers
}

func (o *origins) find(origin store.Origin) (n numbers, known bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	n, known = o.committed[origin]
	return n, known
}

// lookup are the numbers of origins within one transaction: what it adds is known to others once it is committed.
type lookup struct {
	known *origins
	added map[store.Origin]numbers
}

func (o *origins) begin() *lookup { return &lookup{known: o} }

// commit is to be called once the transaction is committed.
func (l *lookup) commit() {
	if len(l.added) == 0 {
		return
	}
	l.known.mu.Lock()
	defer l.known.mu.Unlock()
	if l.known.committed == nil || len(l.known.committed)+len(l.added) > maxRemembered {
		l.known.committed = make(map[store.Origin]numbers)
	}
	maps.Copy(l.known.committed, l.added)
}

// of returns the numbers of an origin, which are new if it is.
func (l *lookup) of(ctx context.Context, tx *sql.Tx, origin store.Origin) (numbers, error) {
	if n, known := l.known.find(origin); known {
		return n, nil
	}
	if n, known := l.added[origin]; known {
		return n, nil
	}
	var n numbers
	if _, err := tx.ExecContext(ctx, `INSERT INTO workflows (workflow_id) VALUES (?) ON CONFLICT DO NOTHING`, origin.WorkflowID); err != nil {
		return n, err
	}
	if err := tx.QueryRowContext(ctx, `SELECT workflow FROM workflows WHERE workflow_id = ?`, origin.WorkflowID).Scan(&n.workflow); err != nil {
		return n, err
	}
	row := []any{n.workflow, origin.NodeID, origin.AccountID, origin.Queue, string(origin.Source), origin.TokenID, origin.Sender, origin.Verified}
	if _, err := tx.ExecContext(ctx, `INSERT INTO origins (workflow, node_id, account_id, queue, source, token_id, sender, verified)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, row...); err != nil {
		return n, err
	}
	if err := tx.QueryRowContext(ctx, `SELECT origin FROM origins WHERE workflow = ? AND node_id = ? AND account_id = ? AND queue = ?
		AND source = ? AND token_id = ? AND sender = ? AND verified = ?`, row...).Scan(&n.origin); err != nil {
		return n, err
	}
	if l.added == nil {
		l.added = make(map[store.Origin]numbers)
	}
	l.added[origin] = n
	return n, nil
}

// readOrigins are those that this process has read, by their numbers. It is safe for concurrent use.
type readOrigins struct {
	mu       sync.RWMutex
	byNumber map[int64]store.Origin
}

// withOrigins gives records their origins, which are named by their numbers. To join them to each record would cost more
// than the record itself.
func (s *Store) withOrigins(ctx context.Context, db querier, records []store.Record, numbers []int64) error {
	found, missing := s.known.of(numbers)
	if len(missing) > 0 {
		if err := readMissing(ctx, db, missing, found); err != nil {
			return err
		}
		s.known.add(found)
	}
	for i, number := range numbers {
		o, known := found[number]
		if !known {
			return fmt.Errorf("the record %s has the origin %d, which is not there", records[i].ID, number)
		}
		r := &records[i]
		r.AccountID, r.WorkflowID, r.NodeID, r.Queue = o.AccountID, o.WorkflowID, o.NodeID, o.Queue
		r.Source, r.TokenID, r.Sender, r.Verified = o.Source, o.TokenID, o.Sender, o.Verified
	}
	return nil
}

// of returns those that are known, and which are not.
func (k *readOrigins) of(numbers []int64) (found map[int64]store.Origin, missing []int64) {
	found = make(map[int64]store.Origin)
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, number := range numbers {
		if _, have := found[number]; have || slices.Contains(missing, number) {
			continue
		}
		if o, known := k.byNumber[number]; known {
			found[number] = o
		} else {
			missing = append(missing, number)
		}
	}
	return found, missing
}

func (k *readOrigins) add(found map[int64]store.Origin) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byNumber == nil || len(k.byNumber)+len(found) > maxRemembered {
		k.byNumber = make(map[int64]store.Origin)
	}
	maps.Copy(k.byNumber, found)
}

func readMissing(ctx context.Context, db querier, missing []int64, into map[int64]store.Origin) error {
	list, err := json.Marshal(missing)
	if err != nil {
		return err
	}
	return eachRow(ctx, db, func(row relational.Row) error {
		var number int64
		var o store.Origin
		err := row.Scan(&number, &o.WorkflowID, &o.NodeID, &o.AccountID, &o.Queue, &o.Source, &o.TokenID, &o.Sender, &o.Verified)
		into[number] = o
		return err
	}, `SELECT o.origin, w.workflow_id, o.node_id, o.account_id, o.queue, o.source, o.token_id, o.sender, o.verified
		FROM origins o JOIN workflows w USING (workflow) WHERE o.origin IN (SELECT value FROM json_each(?))`, string(list))
}
