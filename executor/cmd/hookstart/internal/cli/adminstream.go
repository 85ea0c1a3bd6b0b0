package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/hookstart/hookstart/shared/stream"
)

// adminStreamCmd changes a stream's settings directly in NATS. Executors never change them, and
// refuse to start if they differ from the configuration.
type adminStreamCmd struct {
	MaxAge      *time.Duration `help:"How long messages stay in the stream, like 720h." placeholder:"DURATION"`
	DedupWindow *time.Duration `help:"How long a delivery ID is remembered; at most as long as messages stay." placeholder:"DURATION"`
	MaxBytes    *int64         `help:"Maximum size of the stream, in bytes; when it is full, senders get 503. 0: no limit." placeholder:"BYTES"`
	Yes         bool           `help:"Shorten the age although that deletes messages."`

	natsFlags
}

func (*adminStreamCmd) Help() string {
	return `Shows how long the stream keeps messages, remembers delivery IDs and how large it may
be; with flags, changes it while everything runs. Give the executors (or hookstart-local)
the same values before they start again: --stream-max-age, --dedup-window and
--stream-max-bytes. Queues with streams of their own get the same age and dedup window,
unless an age is set for the queue.

Examples:

  hookstart admin stream
  hookstart admin stream --max-age 720h --dedup-window 72h`
}

func (v *adminStreamCmd) Run(s *session) error {
	js, err := v.connect(s.ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	have, err := stream.ReadExecutionsStreamState(s.ctx, js)
	if err != nil {
		return err
	}
	to := have.Settings
	if v.MaxAge != nil {
		to.MaxAge = *v.MaxAge
	}
	if v.DedupWindow != nil {
		to.DedupWindow = *v.DedupWindow
	}
	if v.MaxBytes != nil {
		to.MaxBytes = *v.MaxBytes
	}
	if v.MaxAge == nil && v.DedupWindow == nil && v.MaxBytes == nil {
		return v.printSettings(s, have)
	}
	if err := to.Validate(); err != nil {
		return &usageError{err.Error(), "hookstart admin stream --help"}
	}
	if !v.Yes {
		name, oldest, err := stream.OldestExpiredBy(s.ctx, js, to.MaxAge, s.now())
		if err != nil {
			return err
		}
		if name != "" {
			return &hintError{
				fmt.Errorf("the oldest message of %s was stored %s: an age of %s deletes all that "+
					"is older, with the inputs of their executions", name,
					ago(oldest, s.now()), to.MaxAge),
				"repeat it with --yes",
			}
		}
	}
	// Even if EXECUTIONS has these settings, other streams may not: an earlier call may have failed
	// halfway.
	if err := stream.ChangeSettings(s.ctx, js, to); err != nil {
		return err
	}
	if have, err = stream.ReadExecutionsStreamState(s.ctx, js); err != nil {
		return err
	}
	s.printNote("Set for executors: HOOKSTART_STREAM_MAX_AGE=%s HOOKSTART_DEDUP_WINDOW=%s "+
		"HOOKSTART_STREAM_MAX_BYTES=%d", to.MaxAge, to.DedupWindow, to.MaxBytes)
	return v.printSettings(s, have)
}

func (v *adminStreamCmd) printSettings(s *session, state stream.ExecutionsStreamState) error {
	size := "no limit"
	if state.MaxBytes > 0 {
		size = decimalBytes(state.MaxBytes)
	}
	return s.printValue(map[string]any{
		"maxAgeSeconds":      state.MaxAge.Seconds(),
		"dedupWindowSeconds": state.DedupWindow.Seconds(),
		"maxBytes":           state.MaxBytes,
		"messages":           state.Messages,
		"bytes":              state.Bytes,
	}, func() error {
		return s.printRows([][]string{
			{"Messages stay", state.MaxAge.String()},
			{"Delivery IDs are remembered", state.DedupWindow.String()},
			{"Maximum size", size},
			{"Messages", strconv.FormatUint(state.Messages, 10)},
			{"Size", decimalBytes(int64(state.Bytes))}, //nolint:gosec // no stream has 2^63 bytes
			{"Oldest message", agoOr(state.OldestStoredAt, s.now(), "–")},
		})
	})
}
