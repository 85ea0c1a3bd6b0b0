package main

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// If the terminal hangs up, a command terminates as it does after SIGTERM, unless the program was
// started with nohup.
func TestHangUp(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	_ = signalContext()
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("SIGHUP is not ignored any more")
	}
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP) // from now on it is not ignored, even with nohup
	ctx := signalContext()
	for range 2 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-received
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Second):
			t.Fatal("the context goes on")
		}
	}
}
