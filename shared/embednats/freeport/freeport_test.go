package freeport_test

import (
	"net"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/freeport"
)

func TestNoPortIsReservedTwice(t *testing.T) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		taken = map[int]bool{}
	)
	for range 50 {
		wg.Go(func() {
			port, err := freeport.Reserve()
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(port.Release)
			l, err := net.Listen("tcp", port.Addr())
			if err != nil {
				t.Error(err)
				return
			}
			_ = l.Close()
			mu.Lock()
			defer mu.Unlock()
			if taken[port.Number] {
				t.Errorf("%d was reserved twice", port.Number)
			}
			taken[port.Number] = true
		})
	}
	wg.Wait()
}

// A reserved port is not available to other callers until it is released.
func TestAPortIsHeldUntilItIsReleased(t *testing.T) {
	port, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	if other, err := net.ListenPacket("udp", port.Addr()); err == nil {
		_ = other.Close()
		t.Error("it is not held")
	}
	port.Release()
	other, err := net.ListenPacket("udp", port.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
}
