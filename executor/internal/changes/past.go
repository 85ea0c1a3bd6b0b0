package changes

import "time"

// Batch are records that changed together.
type Batch struct {
	// At is when this process heard of them. Each batch's is after that of the one before.
	At  time.Time
	IDs []string
}

const (
	// maxPast is how many IDs are remembered for those who come back: a few megabytes.
	maxPast = 50_000
	// otherClocks is how far the clocks of executors may be apart: whoever comes back from another one is told
	// again what is that much older.
	otherClocks = 5 * time.Second
)

// past are the newest batches, the oldest first.
type past struct {
	since   time.Time // all that came after it is here
	batches []Batch
	ids     int // in all batches
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

// begin forgets what came before a time.
func (p *past) begin(at time.Time) { *p = past{since: at} }

// after are the batches after a time and a little before it, and whether all after it are there.
func (p *past) after(at time.Time) (batches []Batch, complete bool) {
	for i, b := range p.batches {
		if b.At.After(at.Add(-otherClocks)) {
			return append(batches, p.batches[i:]...), !p.since.After(at)
		}
	}
	return nil, !p.since.After(at)
}
