package natstest_test

import (
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// This example publishes a message, restarts the server, and then consumes the message.
func ExampleStart() {
	t, done := exampleTest() // in a test: the test's own t
	defer done()
	ctx := t.Context()

	server := natstest.Start(t)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name:     "JOBS",
		Subjects: []string{"jobs.>"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "jobs.1", []byte("one")); err != nil {
		t.Fatal(err)
	}

	server.Restart()

	// Use a new client: the old one may still be reconnecting, and a request through it could fail.
	if js, err = jetstream.New(server.Connect(t)); err != nil {
		t.Fatal(err)
	}
	consumer, err := js.CreateConsumer(ctx, "JOBS", jetstream.ConsumerConfig{Durable: "runner"})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stdout, "%s: %s\n", msg.Subject(), msg.Data())
	// Output: jobs.1: one
}

// This example kills a server without warning; the server keeps the messages it has acknowledged.
func ExampleStartProcess() {
	t, done := exampleTest() // in a test: the test's own t
	defer done()
	ctx := t.Context()

	server := natstest.StartProcess(t, func(o *embednats.Options) { o.SyncAlways = true })
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "JOBS"}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "JOBS", []byte("one")); err != nil {
		t.Fatal(err)
	}

	server.Kill()
	server.Restart()

	if js, err = jetstream.New(server.Connect(t)); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "JOBS")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(os.Stdout, "messages:", stream.CachedInfo().State.Msgs)
	// Output: messages: 1
}

// This example starts a cluster of three servers and stops the leader of a stream.
func ExampleStartCluster() {
	t, done := exampleTest() // in a test: the test's own t
	defer done()
	ctx := t.Context()

	cluster := natstest.StartCluster(t, 3)
	js, err := jetstream.New(cluster.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx,
		jetstream.StreamConfig{Name: "JOBS", Replicas: 3}); err != nil {
		t.Fatal(err)
	}

	leader := cluster.Leader("JOBS")
	cluster.Stop(leader)
	fmt.Fprintln(os.Stdout, "another node leads:", cluster.Leader("JOBS") != leader)

	cluster.Restart(leader)
	// Output: another node leads: true
}
