package ingress

import (
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// buffers hold a request's body and its message. They are pooled: the two were half of the bytes that a request
// allocated.
type buffers struct {
	body    []byte
	message *stream.StartRoom
	headers execution.Values // those that travel on
}

// keptBuffer is the size of the largest buffer that returns to the pool: otherwise a few long bodies would make later
// requests hold as much memory.
const keptBuffer = 16 << 10

// keptHeaders is the most headers of a map that returns to the pool.
const keptHeaders = 64

// trim clears the buffers of a request, and drops those that have become large.
func (b *buffers) trim() {
	if cap(b.body) > keptBuffer {
		b.body = nil
	}
	b.message.Trim(keptBuffer)
	if len(b.headers) > keptHeaders {
		b.headers = execution.Values{}
	}
	clear(b.headers)
}

// forBody returns a buffer for a body of n bytes.
func (b *buffers) forBody(n int64) []byte {
	if int64(cap(b.body)) < n {
		b.body = make([]byte, n)
	}
	return b.body[:n]
}

// grow enlarges the body's buffer and keeps its content.
func (b *buffers) grow(n int64, kept int) []byte {
	if int64(cap(b.body)) < n {
		grown := make([]byte, n)
		copy(grown, b.body[:kept])
		b.body = grown
	}
	return b.body[:n]
}
