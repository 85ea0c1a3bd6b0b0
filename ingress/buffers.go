package ingress

import (
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// buffers holds a request's body, its message and the headers to forward. Buffers are pooled:
// without a pool, bodies and messages accounted for half of the bytes that a request allocates.
type buffers struct {
	body    []byte
	encoder *stream.StartEncoder
	headers execution.Values // the headers to forward
}

// maxPooledBuffer is the maximum size, in bytes, of a buffer that is returned to the pool. Without
// it, a few long bodies would leave oversized buffers to later requests.
const maxPooledBuffer = 16 << 10

// maxPooledHeaderEntries is the maximum number of entries in a headers map that is returned to the
// pool.
const maxPooledHeaderEntries = 64

// reset prepares the buffers for the pool: it discards those that have grown too large, and empties
// the map of headers.
func (b *buffers) reset() {
	if cap(b.body) > maxPooledBuffer {
		b.body = nil
	}
	b.encoder.ReleaseLargeBuffer(maxPooledBuffer)
	if len(b.headers) > maxPooledHeaderEntries {
		b.headers = execution.Values{}
	}
	clear(b.headers)
}

// detach takes the buffers out of b and leaves empty ones in their place, so that the old ones can
// return to the pool while the request still runs. Call it only if the request no longer needs
// their contents.
func (b *buffers) detach() buffers {
	own := *b
	*b = newBuffers()
	return own
}

func newBuffers() buffers {
	return buffers{encoder: new(stream.StartEncoder), headers: execution.Values{}}
}

// bodyOfSize returns a slice of n bytes for the body. The contents of the slice are undefined.
func (b *buffers) bodyOfSize(n int64) []byte {
	if int64(cap(b.body)) < n {
		b.body = make([]byte, n)
	}
	return b.body[:n]
}

// growBody enlarges the body's buffer to n bytes and returns it. The bytes before index kept are
// preserved.
func (b *buffers) growBody(n int64, kept int) []byte {
	if int64(cap(b.body)) < n {
		grown := make([]byte, n)
		copy(grown, b.body[:kept])
		b.body = grown
	}
	return b.body[:n]
}
