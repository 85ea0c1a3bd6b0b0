package changes

import "time"

// Batch holds the IDs of records that changed together.
type Batch struct {
	// At is the time at which this process received the announcement. It is later than the time of
	// every earlier batch.
	At time.Time
	// IDs holds the IDs of the records, in no order.
	IDs []string
}

const (
	// maxPast is the number of IDs that are kept for clients that resume: a few megabytes.
	maxPast = 50_000
	// otherClocks is the assumed maximum difference between the clocks of two executors. A client
	// that resumes at another executor receives again the changes that are at most this much older.
	otherClocks = 5 * time.Second
)

// past holds the newest batches, oldest first.
type past struct {
	since   time.Time // batches holds everything that was received after this time
	batches []Batch
	ids     int // the number of IDs in all batches
}

func (p *past) add(b Batch) {
	p.batches = append(p.batches, b)
	p.ids += len(b.IDs)
	for p.ids > maxPast {
		p.since = p.batches[0].At
		p.ids -= len(p.batches[0].IDs)
		p.batches[0] = Batch{}
		p.batches = p.batches[1:]
	}
}

// begin forgets all batches before a time.
func (p *past) begin(at time.Time) { *p = past{since: at} }

// after returns the batches after a time and a little before it, and reports whether no batch after
// the time is missing.
func (p *past) after(at time.Time) (batches []Batch, complete bool) {
	for i, b := range p.batches {
		if b.At.After(at.Add(-otherClocks)) {
			return append(batches, p.batches[i:]...), !p.since.After(at)
		}
	}
	return nil, !p.since.After(at)
}
