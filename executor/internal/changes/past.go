package changes

import "time"

// Batch holds the IDs of records that changed together.
type Batch struct {
	// At is when this process received the announcement. It is later than the At of every batch
	// that was received before. For an announcement that LoadRecent has read from the stream, At is
	// when the stream stored it.
	At time.Time
	// IDs holds the IDs of the records, in no particular order.
	IDs []string
}

const (
	// maxRecentIDs is the maximum number of record IDs kept for clients that resume. That many IDs
	// take up a few megabytes.
	maxRecentIDs = 50_000
	// maxClockSkew is the assumed maximum difference between the clocks of two executors. A client
	// may have received its last event from one executor, and resume on another whose clock is
	// behind. To miss no change, it also receives the changes from up to maxClockSkew before its
	// last event, even if it has received them already.
	maxClockSkew = 5 * time.Second
)

// recentBatches holds the most recent batches, oldest first.
type recentBatches struct {
	completeSince time.Time // batches holds everything received after this time
	batches       []Batch
	idCount       int // total number of IDs in batches
}

func (p *recentBatches) add(b Batch) {
	p.batches = append(p.batches, b)
	p.idCount += len(b.IDs)
	for p.idCount > maxRecentIDs {
		p.completeSince = p.batches[0].At
		p.idCount -= len(p.batches[0].IDs)
		p.batches[0] = Batch{}
		p.batches = p.batches[1:]
	}
}

// reset discards all batches. at is the time of the reset: p then holds every batch that is
// received after that time.
func (p *recentBatches) reset(at time.Time) { *p = recentBatches{completeSince: at} }

// after returns the batches that were received after the given time. Because clocks differ, it also
// returns those that were received up to maxClockSkew before it. complete is false if batches that
// were received after the given time may be missing.
func (p *recentBatches) after(at time.Time) (batches []Batch, complete bool) {
	for i, b := range p.batches {
		if b.At.After(at.Add(-maxClockSkew)) {
			return append(batches, p.batches[i:]...), !p.completeSince.After(at)
		}
	}
	return nil, !p.completeSince.After(at)
}
