package ingress

import "github.com/hookstart/hookstart/shared/execution"

// buffers are what a request needs for its body and for its message. They are used again:
// the two were half of the bytes that a request allocated.
type buffers struct {
	body, message []byte
	headers       execution.Values // those that travel on
}

// keptBuffer is the size of the largest buffer that is used again: a few long bodies must
// not make every later request hold as much.
const keptBuffer = 16 << 10

// keptHeaders is how many headers a map may have had that is used again.
const keptHeaders = 64

// trim forgets what a request has put in, and lets go of what has become large.
func (b *buffers) trim() {
	if cap(b.body) > keptBuffer {
		b.body = nil
	}
	if cap(b.message) > keptBuffer {
		b.message = nil
	}
	if len(b.headers) > keptHeaders {
		b.headers = execution.Values{}
	}
	clear(b.headers)
}

// forBody is room for a body of n bytes.
func (b *buffers) forBody(n int64) []byte {
	if int64(cap(b.body)) < n {
		b.body = make([]byte, n)
	}
	return b.body[:n]
}

// grow makes the room for the body larger, and keeps its first bytes.
func (b *buffers) grow(n int64, kept int) []byte {
	if int64(cap(b.body)) < n {
		grown := make([]byte, n)
		copy(grown, b.body[:kept])
		b.body = grown
	}
	return b.body[:n]
}
