package relational

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// asideMessageTable is the table of messages put aside. It is named unreadable, but also contains
// messages that could be decoded and that the database refused.
var asideMessageTable = table[store.AsideMessageRow]{
	name:    "unreadable",
	columns: "stream_sequence, subject, reason, at, dismissed_at",
	fields: func(u *store.AsideMessageRow) []any {
		return []any{
			&u.StreamSequence, &u.Subject, &u.Reason, timeField{&u.At}, nullableTimeField{
				timeField{&u.DismissedAt},
			},
		}
	},
	onConflict:  "ON CONFLICT DO NOTHING",
	backupOrder: "at, stream_sequence, subject",
	partRows:    func(p *store.BackupPart) *[]store.AsideMessageRow { return &p.PutAside },
}

// MessageKeyCondition is the SQL condition for the message with a given store.MessageKey.
// MessageKeyArgs returns its arguments.
const MessageKeyCondition = `stream_sequence = ? AND CASE
	WHEN subject LIKE 'executions.progress.%' THEN 'executions.progress.'
	WHEN subject LIKE 'executions.queue.%' OR subject LIKE 'executions.reports.%'
		THEN substr(subject, 1, length(CAST(? AS text)))
	ELSE '-' END = ?`

// MessageKeyArgs returns the arguments of MessageKeyCondition.
func MessageKeyArgs(key store.MessageKey) []any {
	return []any{store.StoredSequence(key.StreamSequence), key.SubjectPrefix(), key.SubjectPrefix()}
}

// storeAsideAndAudit stores the messages that a batch puts aside, deletes the put-aside messages
// that it recovers, and stores its audit entries.
func storeAsideAndAudit(ctx context.Context, tx Tx, batch store.Batch) error {
	kept := make([]store.AsideMessageRow, len(batch.PutAside))
	for i, u := range batch.PutAside {
		kept[i].AsideMessage = u
	}
	if err := asideMessageTable.insert(ctx, tx, kept); err != nil {
		return err
	}
	if err := auditTable.insert(ctx, tx, batch.Audit); err != nil {
		return err
	}
	for _, key := range batch.RecoveredAside { // usually one
		if _, err := tx.Exec(ctx, `DELETE FROM unreadable WHERE `+MessageKeyCondition,
			MessageKeyArgs(key)...); err != nil {
			return err
		}
	}
	return nil
}

// GetAside implements store.AsideMessages.
func (s *Store) GetAside(ctx context.Context, key store.MessageKey) (store.AsideMessage, error) {
	found, err := Collect(ctx, s.db, "get unreadable", asideMessageTable.scan,
		asideMessageTable.selectClause()+`WHERE `+MessageKeyCondition, MessageKeyArgs(key)...)
	if err != nil {
		return store.AsideMessage{}, err
	}
	if len(found) == 0 {
		return store.AsideMessage{}, store.ErrNotFound
	}
	return found[0].AsideMessage, nil
}

// ListAside implements store.AsideMessages.
func (s *Store) ListAside(
	ctx context.Context, filter store.AsideFilter, after store.AsidePosition, limit int,
) ([]store.AsideMessage, error) {
	var where Where
	where.Add(`dismissed_at IS NULL`)
	if after != (store.AsidePosition{}) {
		where.Add(`(at, stream_sequence) < (?, ?)`, store.StoredTime(after.At),
			store.StoredSequence(after.StreamSequence))
	}
	if filter.WorkflowID != "" {
		ordered, others := store.SubjectLikePatterns(filter.WorkflowID)
		own := store.OwnStreamLikePatterns(filter.WorkflowID)
		where.Add(`CASE WHEN subject LIKE 'executions.queue.%' THEN subject LIKE ? ESCAPE '\'
			OR subject LIKE ? ESCAPE '\' OR subject LIKE ? ESCAPE '\'
			WHEN subject LIKE 'executions.ordered.%' THEN subject LIKE ? ESCAPE '\'
			ELSE subject LIKE ? ESCAPE '\' END`, own[0], own[1], own[2], ordered, others)
	}
	if filter.Reason != "" {
		where.Add(`strpos(reason, ?) > 0`, store.SanitizeText(filter.Reason))
	}
	where.AddTimeRange(`at`, filter.Since, filter.Until)
	found, err := Collect(ctx, s.db, "list unreadable", asideMessageTable.scan,
		asideMessageTable.selectClause()+where.String()+` ORDER BY at DESC, stream_sequence DESC LIMIT ?`,
		append(where.Args, max(limit, 0))...)
	var messages []store.AsideMessage
	for _, message := range found {
		messages = append(messages, message.AsideMessage)
	}
	return messages, err
}
