package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// outcome is the result of one attempt. Methods of the handler's error may panic, so the function
// failureOutcome calls each of them once and stores the result here.
type outcome struct {
	output     []byte        // JSON; nil means none
	err        error         // nil means that the attempt succeeded
	errText    string        // the text of err
	permanent  bool          // whether the execution must not be retried
	retryAfter time.Duration // delay before the next attempt; 0 leaves it to Options.Backoff
}

// callHandler calls the handler. A panic, or an output that cannot be marshaled, counts as a
// failure.
func callHandler(ctx context.Context, handler Handler, e Execution) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = failureOutcome(fmt.Errorf("panic: %s\n%s", safeText(p), debug.Stack()))
		}
	}()
	value, err := handler(ctx, e)
	if err != nil {
		return failureOutcome(err)
	}
	if value == nil {
		return outcome{}
	}
	output, err := json.Marshal(value)
	if err == nil && !execution.ValidJSON(output) {
		// json.Marshal accepts invalid UTF-8 in a json.RawMessage, but a report with such an output
		// could not be decoded.
		err = errors.New("a string is not valid UTF-8")
	}
	if err != nil {
		return failureOutcome(Permanent(fmt.Errorf("the output is not valid JSON: %w", err)))
	}
	return outcome{output: output}
}

// failureOutcome returns the outcome of an attempt that ended with err, which must not be nil.
func failureOutcome(err error) (o outcome) {
	o.err = err
	defer func() {
		if p := recover(); p != nil {
			o.errText = fmt.Sprintf("the handler returned a %T whose methods panic: %s", err,
				safeText(p))
		}
	}()
	var permanent *permanentError
	o.permanent = errors.As(err, &permanent)
	if later, ok := errors.AsType[*retryAfterError](err); ok {
		o.retryAfter = later.delay
	}
	o.errText = err.Error()
	return o
}

// safeText formats a value of any type as text. If the value's methods panic, it returns only the
// name of the type.
func safeText(value any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T that cannot be printed", value)
		}
	}()
	return fmt.Sprint(value)
}
