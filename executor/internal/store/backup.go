package store

import "time"

// Part is a part of a store's content in a form that every driver reads and writes. A backup is a
// sequence of parts. Backups contain its JSON for years: a field may be added, none may be renamed.
type Part struct {
	// Records have no Duplicates here. They are in a field of their own, since a count can exist
	// before its record.
	Records    []Record          `json:",omitempty"`
	Duplicates []DuplicateCount  `json:",omitempty"`
	Reports    []AppliedReport   `json:",omitempty"`
	TokenUses  []TokenUse        `json:",omitempty"`
	Unreadable []KeptMessage     `json:",omitempty"`
	Pending    []PendingProgress `json:"Early,omitempty"`
	Minutes    []MinuteCount     `json:",omitempty"`
	Refusals   []Refusal         `json:",omitempty"`
	Audit      []AuditEntry      `json:",omitempty"`
	Senders    []SenderSeen      `json:",omitempty"`
	Filtered   []Filtered        `json:",omitempty"`
}

// KeptMessage is an unreadable message with the time at which it was dismissed, which is zero if it
// was not.
type KeptMessage struct {
	Unreadable
	DismissedAt time.Time `json:",omitzero"`
}

// DuplicateCount is the number of suppressed repeats of an execution's delivery.
type DuplicateCount struct {
	ExecutionID string
	Count       int64
	CountedAt   time.Time // the newest report's time
}

// AppliedReport is a report that AddDuplicates or AddRefusals has applied.
type AppliedReport struct {
	ID string    // the random ID that the ingress has given the report
	At time.Time // when the report was made, by which old IDs are deleted
}

// partRows and partBytes bound a part, which is one line of a backup, one request of a restore and
// one transaction.
const (
	partRows  = 500
	partBytes = 1 << 20
)

// Parts collects what a driver reads and passes it on in parts of bounded size.
type Parts struct {
	write func(Part) error
	part  Part // the current part, which is not passed on yet
	rows  int  // number of rows in part
	bytes int  // approximate size of part
}

// NewParts returns Parts that passes the parts to write.
func NewParts(write func(Part) error) *Parts { return &Parts{write: write} }

// Add changes the current part by one row of about the given size.
func (p *Parts) Add(bytes int, change func(*Part)) error {
	change(&p.part)
	p.rows++
	p.bytes += bytes
	if p.rows < partRows && p.bytes < partBytes {
		return nil
	}
	return p.Flush()
}

// AddRecord adds a record.
func (p *Parts) AddRecord(r Record) error {
	r.Duplicates = 0
	return p.Add(len(r.Output)+len(r.Error), func(part *Part) {
		part.Records = append(part.Records, r)
	})
}

// Flush passes on what was added since the last part.
func (p *Parts) Flush() error {
	if p.rows == 0 {
		return nil
	}
	part := p.part
	p.part, p.rows, p.bytes = Part{}, 0, 0
	return p.write(part)
}

// Sanitized returns the part with all values in their stored form, except those that drivers
// convert when they store them.
func (p Part) Sanitized() Part {
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
