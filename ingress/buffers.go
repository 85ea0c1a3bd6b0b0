package ingress

import (
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// buffers holds the body of a request and its message. Buffers are pooled, because the two were
// half of the bytes that a request allocated.
type buffers struct {
	body    []byte
	message *stream.Buffer
	headers execution.Values // the headers that are forwarded
}

// keptBuffer is the maximum size of a buffer that returns to the pool. Without it, a few long
// bodies would make later requests hold as much memory.
const keptBuffer = 16 << 10

// keptHeaders is the maximum number of headers in a map that returns to the pool.
const keptHeaders = 64

// reset clears the buffers of a request and drops those that have become too large for the pool.
func (b *buffers) reset() {
	if cap(b.body) > keptBuffer {
		b.body = nil
	}
	b.message.Trim(keptBuffer)
	if len(b.headers) > keptHeaders {
		b.headers = execution.Values{}
	}
	clear(b.headers)
}

// detach returns the buffers of a request that no longer needs them, for use by other requests, and
// gives it empty ones.
func (b *buffers) detach() buffers {
	own := *b
	*b = newBuffers()
	return own
}

func newBuffers() buffers {
	return buffers{message: new(stream.Buffer), headers: execution.Values{}}
}

// forBody returns a buffer for a body of n bytes.
func (b *buffers) forBody(n int64) []byte {
	if int64(cap(b.body)) < n {
		b.body = make([]byte, n)
	}
	return b.body[:n]
}

// grow enlarges the body's buffer to n bytes and keeps the first kept bytes.
func (b *buffers) grow(n int64, kept int) []byte {
	if int64(cap(b.body)) < n {
		grown := make([]byte, n)
		copy(grown, b.body[:kept])
		b.body = grown
	}
	return b.body[:n]
}
