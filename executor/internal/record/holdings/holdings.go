// Package holdings adds up how much each account has stored in a stream. It reports the sums to the
// ingresses, which divide the space of a nearly full stream among accounts.
//
// NATS reports only the total size of a stream, so the package reads the headers of all messages
// and adds up their sizes. Only one executor does so at a time: the owner of the consumer for the
// headers. The others keep trying to create that consumer, and one of them succeeds when the owner
// is gone. Reading starts when the stream is eight tenths full, and ends when it is less than seven
// tenths full. The sums are not stored: an executor that takes over or has lost the connection
// reads the stream from its beginning. It publishes no sums until it has read the whole stream, and
// the ingresses rely on their own counts until then.
package holdings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/headerreader"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

const (
	// publishInterval is the interval at which the accounts' sums are published.
	publishInterval = time.Second
	// Fill levels of the stream, in tenths of its maximum size. Once the level has reached
	// trackFromTenths, the sums are computed until it falls below stopTrackingBelowTenths.
	// Operators are warned when it reaches warnAtTenths.
	trackFromTenths, stopTrackingBelowTenths, warnAtTenths = 8, 7, 9
	tenthsPerWhole                                         = 10
	// chunkCount is the approximate number of chunks into which the stream's sequences are divided.
	// When all messages of a chunk have expired, the chunk's bytes are subtracted from the sums in
	// one step.
	chunkCount = 256
	// fetchSize is the number of messages requested at a time.
	fetchSize = 2000
	// readTimeout is the maximum time spent reading messages before checking the stream's state
	// again.
	readTimeout = 5 * time.Second
	// maxLoggedAccounts is the maximum number of accounts that the warning about a nearly full
	// stream lists.
	maxLoggedAccounts = 5
)

// Config holds the dependencies of a Tracker, which does not own them.
type Config struct {
	// JetStream provides the messages and the state of the EXECUTIONS stream.
	JetStream jetstream.JetStream
	// AccountOf returns the account of a workflow, or "" if the workflow is unknown.
	AccountOf func(workflowID string) string
	// Log receives a warning when the messages can no longer be read, and when the stream is nearly
	// full.
	Log logrus.FieldLogger
}

// Tracker adds up how many bytes each account has stored in the EXECUTIONS stream.
type Tracker struct {
	config           Config
	scan             *streamScan
	nearlyFullWarned bool // whether operators were warned that the stream is nine tenths full
}

// streamScan is the state of a single pass over the stream, from its first message.
type streamScan struct {
	reader    *headerreader.Reader
	chunkSize uint64 // number of stream sequences per chunk
	// bytesByChunk holds the bytes of each account, keyed by stream sequence divided by chunkSize.
	bytesByChunk   map[uint64]map[string]int64
	bytesByAccount map[string]int64 // total bytes of each account
}

// New returns a Tracker, which does nothing until Run is called.
func New(c Config) *Tracker { return &Tracker{config: c} }

// Run computes and publishes the sums until the context is done.
func (h *Tracker) Run(ctx context.Context) {
	failing := false
	retry.Every(ctx, publishInterval, func() {
		err := h.publishStorageSums(ctx)
		if err != nil && ctx.Err() == nil {
			h.releaseConsumer(ctx)
			if !failing {
				h.config.Log.WithError(err).
					Warn("what accounts hold in the stream could not be added up; it is tried " +
						"again")
			}
		}
		failing = err != nil
	})
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishInterval)
	defer cancel()
	h.releaseConsumer(ending)
}

// publishStorageSums checks how full the stream is. Once it is full enough (see trackFromTenths),
// each call updates and publishes the number of bytes that each account has stored in the stream.
// This ends when the stream is less than stopTrackingBelowTenths full.
func (h *Tracker) publishStorageSums(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s, err := h.config.JetStream.Stream(asking, stream.ExecutionsName)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream.ExecutionsName, err)
	}
	info := s.CachedInfo()
	limit, used := info.Config.MaxBytes, int64(info.State.Bytes) //nolint:gosec // it fits
	if limit <= 0 || used < limit/tenthsPerWhole*stopTrackingBelowTenths {
		h.releaseConsumer(asking)
		h.nearlyFullWarned = false
		return nil
	}
	if h.scan == nil {
		if used < limit/tenthsPerWhole*trackFromTenths {
			return nil
		}
		if h.scan, err = h.startScan(asking, info.State); h.scan == nil || err != nil {
			return err
		}
	}
	complete, err := h.scan.readNewMessages(asking, h.config.AccountOf)
	if err != nil || !complete {
		return err
	}
	h.scan.expireChunksBefore(info.State.FirstSeq)
	h.warnNearlyFull(limit, used)
	data, err := stream.EncodeAccountStorage(stream.ExecutionsName, h.scan.bytesByAccount)
	if err == nil {
		err = h.config.JetStream.Conn().Publish(stream.AccountStorageSubject, data)
	}
	if err != nil {
		return fmt.Errorf("tell the ingresses what accounts hold: %w", err)
	}
	return nil
}

// startScan creates the consumer that reads the stream from its first message. It returns nil
// without an error if another executor is already reading the stream.
func (h *Tracker) startScan(ctx context.Context, state jetstream.StreamState) (*streamScan, error) {
	reader, err := headerreader.Open(ctx, h.config.JetStream, stream.ExecutionsName,
		jetstream.ConsumerConfig{
			Name:          stream.AccountStorageConsumerName,
			Description:   "hookstart: adds up what accounts hold",
			DeliverPolicy: jetstream.DeliverAllPolicy,
		})
	if errors.Is(err, headerreader.ErrConsumerInUse) {
		return nil, nil //nolint:nilnil // another executor adds up
	}
	if err != nil {
		return nil, err
	}
	return &streamScan{
		reader:         reader,
		chunkSize:      max(1, state.Msgs/chunkCount),
		bytesByChunk:   map[uint64]map[string]int64{},
		bytesByAccount: map[string]int64{},
	}, nil
}

// releaseConsumer deletes this executor's consumer, if it has one, so that another executor can
// take over immediately.
func (h *Tracker) releaseConsumer(ctx context.Context) {
	if h.scan != nil {
		h.scan.reader.Close(ctx)
		h.scan = nil
	}
}

// readNewMessages reads the messages that have arrived since the last call, and adds their sizes to
// the sums. account returns the account of a workflow. complete reports whether the end of the
// stream was reached.
func (r *streamScan) readNewMessages(
	ctx context.Context, account func(workflowID string) string,
) (complete bool, err error) {
	for ctx.Err() == nil {
		messages, err := r.reader.FetchNoWait(fetchSize)
		if err != nil {
			return false, fmt.Errorf("read the headers of the stream: %w", err)
		}
		pending, n := uint64(0), 0
		for msg := range messages.Messages() {
			meta, err := r.reader.CheckedMetadata(msg)
			if err != nil {
				return false, fmt.Errorf("read the headers of the stream: %w", err)
			}
			n++
			pending = meta.NumPending
			r.addMessage(msg, meta.Sequence.Stream, account)
		}
		if err := messages.Error(); err != nil && !errors.Is(err, jetstream.ErrNoMessages) {
			return false, fmt.Errorf("read the headers of the stream: %w", err)
		}
		if n == 0 || pending == 0 {
			return true, nil
		}
	}
	return false, nil
}

// addMessage adds a message's size to the sum of its account. The server has omitted the data, but
// reports its length in a header.
func (r *streamScan) addMessage(msg jetstream.Msg, sequence uint64, account func(string) string) {
	header := msg.Headers()
	bytes, err := strconv.Atoi(header.Get(msgSizeHeader))
	if err != nil {
		return
	}
	header.Del(msgSizeHeader)
	id := account(header.Get(stream.HeaderWorkflowID))
	if id == "" {
		return // the workflow was deleted, so the message is not counted for any account
	}
	size := stream.StoredSize(msg.Subject(), header, bytes)
	sums := r.bytesByChunk[sequence/r.chunkSize]
	if sums == nil {
		sums = map[string]int64{}
		r.bytesByChunk[sequence/r.chunkSize] = sums
	}
	sums[id] += size
	r.bytesByAccount[id] += size
}

// msgSizeHeader is the header in which the server reports the length of the omitted data.
const msgSizeHeader = "Nats-Msg-Size"

// expireChunksBefore removes the chunks whose messages have all expired, and subtracts their bytes
// from the sums. first is the sequence of the oldest message that the stream still has.
func (r *streamScan) expireChunksBefore(first uint64) {
	for chunk, sums := range r.bytesByChunk {
		if (chunk+1)*r.chunkSize > first {
			continue
		}
		for id, size := range sums {
			if r.bytesByAccount[id] -= size; r.bytesByAccount[id] == 0 {
				delete(r.bytesByAccount, id)
			}
		}
		delete(r.bytesByChunk, chunk)
	}
}

// warnNearlyFull logs a warning if the stream is nine tenths full, with the accounts that use the
// most space. It does not repeat the warning until the stream has been less than seven tenths full.
func (h *Tracker) warnNearlyFull(limit, used int64) {
	if used < limit/tenthsPerWhole*warnAtTenths || h.nearlyFullWarned {
		return
	}
	h.nearlyFullWarned = true
	sums := h.scan.bytesByAccount
	heavier := func(a, b string) int { return cmp.Compare(sums[b], sums[a]) }
	ids := slices.SortedFunc(maps.Keys(sums), heavier)
	most := make([]string, min(len(ids), maxLoggedAccounts))
	for i := range most {
		most[i] = fmt.Sprintf("%s %.1f %%", ids[i], 100*float64(sums[ids[i]])/float64(limit))
	}
	h.config.Log.WithFields(logrus.Fields{
		"stream":    stream.ExecutionsName,
		"bytes":     used,
		"max_bytes": limit,
		"accounts":  len(ids),
		"most":      most,
	}).Warn("the stream is nine tenths full: the accounts that hold the most are refused first")
}
