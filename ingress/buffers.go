package ingress

import "sync"

// buffers are what a request needs for its body and for its message. They are used again:
// the two were half of the bytes that a request allocated.
type buffers struct{ body, message []byte }

// keptBuffer is the size of the largest buffer that is used again: a few long bodies must
// not make every later request hold as much.
const keptBuffer = 16 << 10

var spareBuffers = sync.Pool{New: func() any { return new(buffers) }}

func takeBuffers() *buffers {
	b, ok := spareBuffers.Get().(*buffers)
	if !ok {
		panic("the pool holds buffers only")
	}
	return b
}

// give gives them back. Nothing may use them any more.
func (b *buffers) give() {
	if cap(b.body) > keptBuffer {
		b.body = nil
	}
	if cap(b.message) > keptBuffer {
		b.message = nil
	}
	spareBuffers.Put(b)
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
