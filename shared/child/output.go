package child

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"sync"
)

// Output collects the output of a process, and lets callers wait for a certain text in it. The zero
// value can be used as the Stdout or Stderr of a command.
type Output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed when there is more output; nil if no call is waiting
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
	return o.text.Write(p)
}

// String returns everything written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Await waits until the output matches the pattern, and returns the match followed by its capture
// groups. It returns an error if p exits or ctx ends first.
func (o *Output) Await(ctx context.Context, p *Process, pattern *regexp.Regexp) ([]string, error) {
	for ended := false; ; {
		o.mu.Lock()
		match := pattern.FindStringSubmatch(o.text.String())
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		grown := o.changed
		o.mu.Unlock()
		switch {
		case match != nil:
			return match, nil
		case ended:
			return nil, fmt.Errorf("ended (%s) before it wrote %s", p.State(), pattern)
		}
		select {
		case <-grown:
		case <-p.Exited(): // its output is complete by now
			ended = true
		case <-ctx.Done():
			return nil, fmt.Errorf("did not write %s: %w", pattern, ctx.Err())
		}
	}
}
