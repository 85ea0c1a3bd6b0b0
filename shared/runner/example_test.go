package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/runner"
)

// The main function of a runner runs executions until SIGTERM, and then lets the executions in
// flight finish.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect("nats://127.0.0.1:4222", nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	handle := func(_ context.Context, e runner.Execution) (any, error) {
		return map[string]int{"bytes": len(e.Payload.Body)}, nil
	}
	if err := runner.Run(ctx, nc, runner.Options{Queue: "orders", Group: "billing"},
		handle); err != nil {
		log.Fatal(err)
	}
}

// bill is a handler. It returns the output, or an error that determines whether another attempt
// makes sense.
func bill(_ context.Context, e runner.Execution) (any, error) {
	var order struct{ Total *float64 }
	if err := json.Unmarshal(e.Input, &order); err != nil || order.Total == nil {
		return nil, runner.Permanent(errors.New("the order has no total"))
	}
	if *order.Total > 1000 {
		return nil, runner.RetryAfter(errors.New("the bank is closed"), time.Hour)
	}
	return map[string]any{"billed": *order.Total}, nil
}

// A handler is an ordinary function, so a test can call it directly. With package runnertest, a
// test can also run it in a real runner.
func ExampleHandler() {
	var handle runner.Handler = bill
	for _, input := range []string{`{"total": 20}`, `{}`, `{"total": 2000}`} {
		output, err := handle(context.Background(), runner.Execution{
			Input:   []byte(input),
			Attempt: 1,
		})
		fmt.Fprintln(os.Stdout, output, err)
	}
	// Output:
	// map[billed:20] <nil>
	// <nil> the order has no total
	// <nil> the bank is closed
}

// Permanent(nil) is nil, so a handler can pass any error to Permanent without checking it first.
func ExamplePermanent() {
	save := func() error { return nil }
	fmt.Fprintln(os.Stdout, runner.Permanent(save()))
	// Output: <nil>
}
