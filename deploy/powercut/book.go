//go:build linux

package powercut

import (
	"fmt"
	"sync"
)

// book is what senders and operators were told by one installation.
type book struct {
	mu       sync.Mutex
	prefix   string
	last     int
	accepted map[string]string // execution ID by delivery ID
	// unanswered are deliveries whose sender has to send them again.
	unanswered []string
	// workflows are those that the API has confirmed, as it confirmed them.
	workflows map[string]confirmed
	changes   int
	strange   []string
	grown     chan struct{}
}

// confirmed is a workflow as the operators' API has answered.
type confirmed struct {
	active bool
	token  string
}

func newBook(prefix string) *book {
	return &book{prefix: prefix, accepted: map[string]string{}, workflows: map[string]confirmed{}, grown: make(chan struct{}, 1)}
}

// delivery is the ID of the next one: one that nobody knows what became of, or a new one.
func (b *book) delivery() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.unanswered); n > 0 {
		id := b.unanswered[n-1]
		b.unanswered = b.unanswered[:n-1]
		return id
	}
	b.last++
	return fmt.Sprintf("%s-%d", b.prefix, b.last)
}

func (b *book) accept(deliveryID, executionID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, known := b.accepted[deliveryID]; known && before != executionID {
		b.strange = append(b.strange, fmt.Sprintf("delivery %s has the executions %s and %s", deliveryID, before, executionID))
	}
	b.accepted[deliveryID] = executionID
	select {
	case b.grown <- struct{}{}:
	default:
	}
}

func (b *book) noAnswer(deliveryID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unanswered = append(b.unanswered, deliveryID)
}

func (b *book) wonder(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strange = append(b.strange, fmt.Sprintf(format, args...))
}

// confirm notes what the API said of a workflow; forget, that nobody knows what became of it.
func (b *book) confirm(id string, c confirmed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.workflows[id] = c
	b.changes++
}

func (b *book) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.workflows, id)
}

func (b *book) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.accepted)
}
