// Command github is an example of a runner. It consumes GitHub's webhooks from a queue, processes
// only those that GitHub has signed, and returns a summary of each.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/runner"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(log); err != nil {
		log.Error(err.Error())
		os.Exit(1)
	}
}

func run(log *slog.Logger) error {
	natsURL := flag.String("nats-url", "nats://127.0.0.1:4222", "NATS servers, comma-separated.")
	seed := flag.String("nats-nkey", "", "File with the NKey seed for NATS.")
	authority := flag.String("nats-ca", "",
		"File with the certificate authority of the NATS servers.")
	queue := flag.String("queue", "github", "The queue of the workflows that GitHub calls.")
	group := flag.String("group", "github", "Those who share a group share the work.")
	flag.Parse()
	// The secret is not a flag because other users may see a command's flags.
	//nolint:forbidigo // a program's main reads its environment
	secret := os.Getenv("GITHUB_WEBHOOK_SECRET")
	if secret == "" {
		return errors.New("GITHUB_WEBHOOK_SECRET must be set: the secret that was given to " +
			"GitHub with the webhook URL")
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	options := []nats.Option{nats.Name("hookstart example runner github"), nats.MaxReconnects(-1)}
	if *seed != "" {
		key, err := nats.NkeyOptionFromSeed(*seed)
		if err != nil {
			return err
		}
		options = append(options, key)
	}
	if *authority != "" {
		options = append(options, nats.RootCAs(*authority))
	}
	nc, err := nats.Connect(*natsURL, options...)
	if err != nil {
		return err
	}
	defer nc.Close()
	ready := func() { log.Info("runner is ready", "queue", *queue) }
	return runner.Run(ctx, nc, runner.Options{
		Queue:   *queue,
		Group:   *group,
		OnReady: ready,
		Log:     log,
	}, newHandler([]byte(secret)))
}
