package store

import (
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// Part is some of what a store keeps, as every driver reads and writes it: a backup is a number of parts. Its
// JSON is what a backup holds, for years: a field may be added, none may change its name.
type Part struct {
	// Records have no Duplicates here: these are apart, since a count can be there before its record.
	Records    []Record         `json:",omitempty"`
	Duplicates []DuplicateCount `json:",omitempty"`
	Reports    []AppliedReport  `json:",omitempty"`
	TokenUses  []TokenUse       `json:",omitempty"`
	Unreadable []KeptMessage    `json:",omitempty"`
	Early      []Early          `json:",omitempty"`
	Minutes    []MinuteCount    `json:",omitempty"`
	Refusals   []Refusal        `json:",omitempty"`
	Audit      []AuditEntry     `json:",omitempty"`
	Senders    []SenderSeen     `json:",omitempty"`
}

// KeptMessage is an unreadable message, and when it was dismissed; zero: it was not.
type KeptMessage struct {
	Unreadable
	DismissedAt time.Time `json:",omitzero"`
}

// DuplicateCount is how many repeats of an execution's delivery were suppressed.
type DuplicateCount struct {
	ExecutionID string
	Count       int64
	CountedAt   time.Time // the newest report's time
}

// AppliedReport is a report that AddDuplicates or AddRefusals has applied.
type AppliedReport struct {
	ID string
	At time.Time
}

// partRows and partBytes bound a part: it is one line of a backup, one request of a restore, and one
// transaction.
const (
	partRows  = 500
	partBytes = 1 << 20
)

// Parts collects what a driver reads, and hands it on in parts that are not too large.
type Parts struct {
	write func(Part) error
	part  Part
	rows  int
	bytes int
}

// NewParts hands parts to write.
func NewParts(write func(Part) error) *Parts { return &Parts{write: write} }

// Add changes the part by one row of about so many bytes.
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
	return p.Add(len(r.Output)+len(r.Error), func(part *Part) { part.Records = append(part.Records, r) })
}

// AddEarly adds a step that is kept.
func (p *Parts) AddEarly(e Early) error {
	return p.Add(len(e.Output)+len(e.Error), func(part *Part) { part.Early = append(part.Early, e) })
}

// Flush hands on what was added since the last part.
func (p *Parts) Flush() error {
	if p.rows == 0 {
		return nil
	}
	part := p.part
	p.part, p.rows, p.bytes = Part{}, 0, 0
	return p.write(part)
}

// Storable is the part with every value as it is stored.
func (p Part) Storable() Part {
	s := p
	s.Records = make([]Record, len(p.Records))
	for i, r := range p.Records {
		s.Records[i] = r.storable()
	}
	s.Unreadable = make([]KeptMessage, len(p.Unreadable))
	for i, u := range p.Unreadable {
		u.Subject, u.Reason, u.At, u.DismissedAt = Text(u.Subject), Text(u.Reason), Time(u.At), Time(u.DismissedAt)
		s.Unreadable[i] = u
	}
	s.Refusals, s.Senders = StorableRefusals(p.Refusals), StorableSenders(p.Senders)
	s.Early = make([]Early, len(p.Early))
	for i, e := range p.Early {
		e.ID, e.Queue, e.WorkflowID, e.Status = Text(e.ID), Text(e.Queue), Text(e.WorkflowID), execution.Status(Text(string(e.Status)))
		e.Error, e.At, e.StartedAt = Text(e.Error), Time(e.At), Time(e.StartedAt)
		s.Early[i] = e
	}
	s.Duplicates = make([]DuplicateCount, len(p.Duplicates))
	for i, d := range p.Duplicates {
		s.Duplicates[i] = DuplicateCount{Text(d.ExecutionID), d.Count, Time(d.CountedAt)}
	}
	s.Reports = make([]AppliedReport, len(p.Reports))
	for i, r := range p.Reports {
		s.Reports[i] = AppliedReport{Text(r.ID), Time(r.At)}
	}
	s.TokenUses = make([]TokenUse, len(p.TokenUses))
	for i, u := range p.TokenUses {
		s.TokenUses[i] = TokenUse{Text(u.TokenID), Time(u.At)}
	}
	s.Minutes = make([]MinuteCount, len(p.Minutes))
	for i, m := range p.Minutes {
		s.Minutes[i] = MinuteCount{m.Minute.UTC(), Text(m.Kind), m.Count}
	}
	return s
}
