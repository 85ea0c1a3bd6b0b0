package store

import (
	"context"
	"time"
)

// Backups writes and restores backups, for operate. A backup contains the data for which BackupPart
// has fields. It does not contain the content of Events, Sessions, RegistryCopy and
// HandledMessages.
type Backups interface {
	// Backup calls write with the parts of a consistent snapshot of the whole content, at most a
	// few hundred rows at a time, oldest records first. If write returns an error, Backup stops and
	// returns that error unchanged. While write runs, Backup holds no locks, so other callers can
	// change the store.
	Backup(ctx context.Context, write func(BackupPart) error) error

	// Restore writes one part of a backup in one transaction. It keeps records, reports and
	// messages that already exist, but adds counts to existing counts. So restore each part only
	// once, into a store for which IsEmpty returned true before the first part.
	Restore(ctx context.Context, part BackupPart) error

	// IsEmpty reports whether there are no records and no counts of accepted requests.
	IsEmpty(ctx context.Context) (bool, error)
}

// BackupPart is a part of a store's content, in a form that every driver reads and writes. A backup
// is a sequence of parts. They are stored as JSON in backups that are kept for years, so fields may
// be added but never renamed.
type BackupPart struct {
	// Records holds records without their duplicate counts. The counts are in Duplicates, possibly
	// of a later part. They are separate because a count can exist before its record does.
	Records    []Record          `json:",omitempty"`
	Duplicates []DuplicateCount  `json:",omitempty"`
	Reports    []AppliedReport   `json:",omitempty"`
	TokenUses  []TokenUse        `json:",omitempty"`
	PutAside   []AsideMessageRow `json:"Unreadable,omitempty"`
	Pending    []PendingProgress `json:"Early,omitempty"`
	Minutes    []MinuteCount     `json:",omitempty"`
	Refusals   []RefusalCount    `json:",omitempty"`
	Audit      []AuditEntry      `json:",omitempty"`
	Senders    []SenderActivity  `json:",omitempty"`
	Filtered   []FilteredSummary `json:",omitempty"`
}

// AsideMessageRow is a message put aside, as it is written to a backup. DismissedAt is when an
// operator dismissed the message from the dead letters, or zero if nobody has.
type AsideMessageRow struct {
	AsideMessage
	DismissedAt time.Time `json:",omitzero"`
}

// DuplicateCount counts the duplicates of an execution's delivery that were suppressed.
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

// maxPartRows and maxPartBytes limit the size of a part. A part is one line of a backup, one
// request of a restore, and one transaction.
const (
	maxPartRows  = 500
	maxPartBytes = 1 << 20
)

// BackupWriter collects the rows that a driver reads, and writes them in parts of limited size.
type BackupWriter struct {
	write func(BackupPart) error
	part  BackupPart // the current part, which has not been written yet
	rows  int        // number of rows in part
	bytes int        // approximate size of part
}

// NewBackupWriter returns a BackupWriter that calls write with each part.
func NewBackupWriter(
	write func(BackupPart) error,
) *BackupWriter {
	return &BackupWriter{write: write}
}

// Add adds one row to the current part: it calls change, which must append the row. bytes is the
// approximate size of the row. If the part is then full, Add writes it.
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

// Flush writes a part with the rows that were added since the last part was written. It does
// nothing if there are none.
func (p *BackupWriter) Flush() error {
	if p.rows == 0 {
		return nil
	}
	part := p.part
	p.part, p.rows, p.bytes = BackupPart{}, 0, 0
	return p.write(part)
}

// Sanitized returns a copy of the part, with its texts and times converted to the form in which
// every driver stores them: see SanitizeText and StoredTime. Each driver makes the remaining
// conversions itself.
func (p BackupPart) Sanitized() BackupPart {
	s := p
	s.Records = make([]Record, len(p.Records))
	for i, r := range p.Records {
		s.Records[i] = r.sanitized()
	}
	s.Refusals, s.Filtered = StorableRefusals(p.Refusals), StorableFiltered(p.Filtered)
	s.Senders = StorableSenderActivity(p.Senders)
	s.Minutes = make([]MinuteCount, len(p.Minutes))
	for i, m := range p.Minutes {
		s.Minutes[i] = MinuteCount{m.Minute.UTC(), SanitizeText(m.Kind), m.Count}
	}
	return s
}
