//go:build unix

package embednats_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats"
)

// While the disk does not take what is written to one stream, CheckRoom does not wait for it, and
// still finds that the other streams leave no room.
func TestCheckRoomWhileTheDiskStalls(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embednats.Options{StoreDir: dir, MaxStore: 10 << 20})
	watch, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.WatchRoom(watch)
	}()
	defer func() {
		stop()
		<-stopped
	}()
	nc, err := nats.Connect("", s.InProcess())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"STALLED": 120_000, "OTHER": -1} {
		if _, err := js.CreateStream(t.Context(),
			jetstream.StreamConfig{Name: name, MaxBytes: size}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.Publish(t.Context(), "STALLED", nil); err != nil {
		t.Fatal(err)
	}

	// The stream's second file is a pipe, which is full after 64 KiB. As the stream is small, its
	// files are, too: the next message is written to that one.
	path := filepath.Join(dir, "jetstream", "$G", "streams", "STALLED", "msgs", "2.blk")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if _, err := js.PublishMsgAsync(&nats.Msg{Subject: "STALLED", Data: make([]byte, 100_000)}); err != nil {
		t.Fatal(err)
	}
	defer func() { // or the server could not stop
		go func() { _, _ = io.Copy(io.Discard, pipe) }()
		<-js.PublishAsyncComplete()
	}()

	body := make([]byte, 1_000_000)
	for range 10 {
		if _, err := js.Publish(t.Context(), "OTHER", body); err != nil {
			t.Fatal(err)
		}
	}
	full := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for s.CheckRoom() == nil {
			<-tick.C
		}
		close(full)
	}()
	select {
	case <-full:
	case <-time.After(10 * time.Second):
		t.Error("CheckRoom waits, or returns nil")
	}
	select {
	case <-js.PublishAsyncComplete():
		t.Error("the disk did not stall")
	default:
	}
}
