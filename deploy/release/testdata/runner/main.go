package main

import (
	"context"
	"log"
	"os"
	"strings"

	"github.com/hookstart/hookstart/shared/runner"
	"github.com/nats-io/nats.go"
)

func main() {
	nc, err := nats.Connect(os.Getenv("HOOKSTART_NATS_URL"))
	if err == nil {
		err = runner.Run(context.Background(), nc, runner.Options{Group: "shouters"}, shout)
	}
	log.Fatal(err)
}

func shout(_ context.Context, e runner.Execution) (any, error) {
	return map[string]string{"shouted": strings.ToUpper(string(e.Payload.Body))}, nil
}
