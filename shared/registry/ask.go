package registry

import (
	"context"
	"time"
)

// askTimeout is how long one question is waited for. A cluster without a leader does not
// answer at all: it has to be asked again.
const askTimeout = 2 * time.Second

// ask asks up to four times a second until there is an answer or the context ends; then
// it returns the last error.
func ask(ctx context.Context, question func(context.Context) error) error {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		err := question(asking)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
