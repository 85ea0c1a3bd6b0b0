package store

import (
	"context"
	"time"
)

// Backups writes and restores backups. operate uses it. The fields of BackupPart show what a backup
// contains. It does not contain what Events, Sessions, RegistryCopy and HandledMessages keep.
type Backups interface {
	// Backup passes a consistent snapshot of the whole content to write, in parts of at most a few
	// hundred rows, oldest records first. If write returns an error, Backup stops and returns that
	// error unchanged. Backup holds no locks while write runs, so other callers can write to the
	// store in the meantime.
	Backup(ctx context.Context, write func(BackupPart) error) error

	// Restore writes a part of a backup in one transaction. Records, reports and messages that
	// already exist do not change, but counts are added to existing counts. Restore each part only
	// once, into a store for which IsEmpty returned true before the first part.
	Restore(ctx context.Context, part BackupPart) error

	// IsEmpty reports whether there are no records and no counts of accepted requests.
	IsEmpty(ctx context.Context) (bool, error)
}

// BackupPart is a part of a store's content, in a form that every driver reads and writes. A backup
// is a sequence of parts. Backups keep the JSON of a part for years, so fields may be added but
// never renamed.
type BackupPart struct {
	// Records have zero Duplicates here. The counts are in the separate field Duplicates, because a
	// count can exist before its record does.
	Records    []Record           `json:",omitempty"`
	Duplicates []DuplicateCount   `json:",omitempty"`
	Reports    []AppliedReport    `json:",omitempty"`
	TokenUses  []TokenUse         `json:",omitempty"`
	PutAside   []AsideMessageRow  `json:"Unreadable,omitempty"`
	Pending    []PendingProgress  `json:"Early,omitempty"`
	Minutes    []MinuteCount      `json:",omitempty"`
	Refusals   []RefusalCount     `json:",omitempty"`
	Audit      []AuditEntry       `json:",omitempty"`
	Senders    []SenderActivity   `json:",omitempty"`
	Filtered   []FilteredRequests `json:",omitempty"`
}

// AsideMessageRow is a stream message that was put aside because it could not be recorded.
// DismissedAt is when an operator dismissed it. Zero means never.
type AsideMessageRow struct {
	AsideMessage
	DismissedAt time.Time `json:",omitzero"`
}

// DuplicateCount is the number of suppressed duplicates of an execution's delivery.
type DuplicateCount struct {
	ExecutionID string
	Count       int64
	CountedAt   time.Time // the time of the newest report
}

// AppliedReport identifies a report that has been applied, so that it is not applied twice.
type AppliedReport struct {
	ID string    // the random ID that the ingress gave the report
	At time.Time // when the report was made; old IDs are deleted
}

// maxPartRows and maxPartBytes limit a part, which is one line of a backup, one request of a
// restore, and one transaction.
const (
	maxPartRows  = 500
	maxPartBytes = 1 << 20
)

// BackupWriter collects rows read by a driver and writes them in parts of limited size.
type BackupWriter struct {
	write func(BackupPart) error
	part  BackupPart // the current part, which has not been written yet
	rows  int        // number of rows in part
	bytes int        // approximate size of part
}

// NewBackupWriter returns a BackupWriter that passes each part to write.
func NewBackupWriter(
	write func(BackupPart) error,
) *BackupWriter {
	return &BackupWriter{write: write}
}

// Add calls change, which adds one row of about the given size, in bytes, to the current part. Add
// flushes the part if it is then full.
func (p *BackupWriter) Add(bytes int, change func(*BackupPart)) error {
	change(&p.part)
	p.rows++
	p.bytes += bytes
	if p.rows < maxPartRows && p.bytes < maxPartBytes {
		return nil
	}
	return p.Flush()
}

// AddRecord adds a record, without its count of duplicates.
func (p *BackupWriter) AddRecord(r Record) error {
	r.Duplicates = 0
	return p.Add(len(r.Output)+len(r.Error), func(part *BackupPart) {
		part.Records = append(part.Records, r)
	})
}

// Flush writes the rows added since the last flush as one part. It does nothing if there are none.
func (p *BackupWriter) Flush() error {
	if p.rows == 0 {
		return nil
	}
	part := p.part
	p.part, p.rows, p.bytes = BackupPart{}, 0, 0
	return p.write(part)
}

// Sanitized returns a copy of the part in which texts and times are converted to the form in which
// every driver stores them: see SanitizeText and StoredTime. Other conversions are left to each
// driver.
func (p BackupPart) Sanitized() BackupPart {
	s := p
	s.Records = make([]Record, len(p.Records))
	for i, r := range p.Records {
		s.Records[i] = r.sanitized()
	}
	s.Refusals, s.Senders, s.Filtered = StorableRefusals(p.Refusals), StorableSenders(p.Senders),
		StorableFiltered(p.Filtered)
	s.Minutes = make([]MinuteCount, len(p.Minutes))
	for i, m := range p.Minutes {
		s.Minutes[i] = MinuteCount{m.Minute.UTC(), SanitizeText(m.Kind), m.Count}
	}
	return s
}
