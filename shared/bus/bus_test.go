package bus_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

func TestConnectWaitsForTheServer(t *testing.T) {
	server := natstest.Start(t)
	server.Stop()
	connected := make(chan error, 1)
	go func() {
		nc, err := bus.Connect(t.Context(), bus.Options{URL: server.URL(), Timeout: 20 * time.Second, Log: quiet()})
		if err == nil {
			nc.Close()
		}
		connected <- err
	}()
	server.Restart()
	if err := <-connected; err != nil {
		t.Error(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := bus.Connect(ctx, bus.Options{URL: "nats://me:secret@127.0.0.1:1,nats://127.0.0.1:2", Timeout: time.Second, Log: quiet()})
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "nats://127.0.0.1:1,nats://127.0.0.1:2") {
		t.Errorf("%v", err)
	}
}

// What was published while the server was away must not turn up later.
func TestNothingIsKeptForLater(t *testing.T) {
	server := natstest.Start(t)
	lost := make(chan struct{}, 1)
	nc, err := bus.Connect(t.Context(), bus.Options{URL: server.URL(), Timeout: 20 * time.Second, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	changed := nc.StatusChanged(nats.RECONNECTING)
	go func() { <-changed; lost <- struct{}{} }()
	server.Stop()
	<-lost
	if err := nc.Publish("x", nil); err == nil {
		t.Error("a message was taken while the server was away")
	}
	changed = nc.StatusChanged(nats.CONNECTED)
	server.Restart()
	<-changed
	if err := nc.Publish("x", nil); err != nil {
		t.Error(err)
	}
}

func TestRedact(t *testing.T) {
	for urls, want := range map[string]string{
		"nats://a:b@h:1, h2:2":  "nats://h:1,h2:2",
		"nats://token@h":        "nats://h",
		"a:b@h:1":               "h:1",
		"nats://a:%zz@h:1":      "h:1",
		"tls://h:1,nats://h2:2": "tls://h:1,nats://h2:2",
	} {
		if got := bus.Redact(urls); got != want {
			t.Errorf("%s: %s, want %s", urls, got, want)
		}
	}
}
