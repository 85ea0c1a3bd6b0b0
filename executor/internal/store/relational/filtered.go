package relational

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var filteredSummaryTable = table[store.FilteredSummary]{
	name:    "filtered",
	columns: "workflow_id, node_id, filtered, last_requests",
	fields: func(f *store.FilteredSummary) []any {
		return []any{&f.WorkflowID, &f.NodeID, &f.Count, filteredRequestsField{&f.Last}}
	},
	// AddFilteredRequests relies on this update to lock a row that already exists.
	onConflict: `ON CONFLICT (workflow_id, node_id) DO UPDATE
		SET filtered = filtered.filtered + excluded.filtered`,
	backupOrder: "workflow_id, node_id",
	partRows:    func(p *store.BackupPart) *[]store.FilteredSummary { return &p.Filtered },
}

// filteredRequestsField stores a list of requests as JSON.
type filteredRequestsField struct{ list *[]store.FilteredRequest }

func (f filteredRequestsField) value() any {
	text, err := json.Marshal(*f.list)
	if err != nil {
		panic(err) // storable strings and times always marshal
	}
	return string(text)
}

// Scan implements sql.Scanner.
func (f filteredRequestsField) Scan(from any) error {
	switch text := from.(type) {
	case string:
		return json.Unmarshal([]byte(text), f.list)
	case []byte:
		return json.Unmarshal(text, f.list)
	default:
		return fmt.Errorf("%T is not a list of requests", from)
	}
}

// AddFilteredRequests implements store.Reports.
func (s *Store) AddFilteredRequests(
	ctx context.Context, reportID string, at time.Time, added []store.FilteredSummary,
) error {
	added = store.StorableFiltered(added)
	return s.applyReportOnce(ctx, "add filtered", reportID, at, func(tx Tx) error {
		// This insert locks the rows until the commit, so no other transaction can change the lists
		// that are read below.
		if err := filteredSummaryTable.insert(ctx, tx, added); err != nil {
			return err
		}
		for _, f := range added {
			var have store.FilteredSummary
			if err := tx.Query(ctx, func(row Row) (err error) {
				have, err = filteredSummaryTable.scan(row)
				return err
			}, filteredSummaryTable.selectClause()+`WHERE workflow_id = ? AND node_id = ?`,
				f.WorkflowID, f.NodeID); err != nil {
				return err
			}
			if have.Count == f.Count { // the row is new, and was inserted as a whole
				continue
			}
			last := store.NewestFiltered(have.Last, f.Last)
			if _, err := tx.Exec(ctx,
				`UPDATE filtered SET last_requests = ? WHERE workflow_id = ? AND node_id = ?`,
				filteredRequestsField{&last}.value(), f.WorkflowID, f.NodeID); err != nil {
				return err
			}
		}
		return tx.AddMinutes(ctx, store.FilteredMinuteCount(at, added))
	})
}

// FilteredSummary implements store.Senders.
func (s *Store) FilteredSummary(
	ctx context.Context,
	workflowID, nodeID string,
) (store.FilteredSummary, error) {
	found, err := Collect(ctx, s.db, "filtered", filteredSummaryTable.scan,
		filteredSummaryTable.selectClause()+`WHERE workflow_id = ? AND node_id = ?`,
		store.SanitizeText(workflowID), store.SanitizeText(nodeID))
	if err != nil || len(found) == 0 {
		return store.FilteredSummary{WorkflowID: workflowID, NodeID: nodeID}, err
	}
	return found[0], nil
}
