package edit

import (
	"fmt"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// Limits on a workflow and its nodes. They also keep records small enough for one NATS message.
const (
	MaxTriggersPerWorkflow = 100
	MaxNameLength          = 200 // characters in a display name
	MaxTokensPerNode       = 10  // valid tokens of one node, including the old ones
	MaxOldTokenLifetime    = 30 * 24 * time.Hour
	MaxSamplePayloadBytes  = 512 << 10
)

func checkID(field, id string) error {
	if !execution.ValidName(id) {
		return &InvalidFieldError{field, "must be 1 to 64 of the characters A-Z a-z 0-9 _ -"}
	}
	return nil
}

func checkDisplayName(field, text string) error {
	if n := len([]rune(text)); n > MaxNameLength {
		return &InvalidFieldError{
			field, fmt.Sprintf("must be at most %d characters, not %d", MaxNameLength, n),
		}
	}
	return nil
}

func checkSample(field string, sample []byte) error {
	switch {
	case len(sample) > MaxSamplePayloadBytes:
		return &InvalidFieldError{
			field, fmt.Sprintf("must be at most %d bytes, not %d", MaxSamplePayloadBytes,
				len(sample)),
		}
	case !execution.ValidJSON(sample):
		return &InvalidFieldError{field, "must be one JSON text"}
	}
	return nil
}

func checkRateLimit(requests, windowSeconds int64) error {
	if requests < 1 || requests > MaxRateRequests {
		return fmt.Errorf("rateLimit.requests must be 1 to %d, not %d", MaxRateRequests, requests)
	}
	if windowSeconds < 1 || windowSeconds > MaxRateWindowSeconds {
		return fmt.Errorf("rateLimit.windowSeconds must be 1 to %d, not %d", MaxRateWindowSeconds,
			windowSeconds)
	}
	return nil
}
