package natstest_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// createStream creates the stream S, which deduplicates messages by ID.
func createStream(t *testing.T, nc *nats.Conn, replicas int) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Replicas: replicas, Duplicates: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	return js
}

// publish publishes a message with an ID and retries until it is acknowledged.
func publish(t *testing.T, js jetstream.JetStream, id string) *jetstream.PubAck {
	t.Helper()
	var ack *jetstream.PubAck
	eventually(t, "publish "+id, func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ack, err = js.Publish(ctx, "S", []byte(id), jetstream.WithMsgID(id))
		return err
	})
	return ack
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(20 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

func TestDataSurvives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		start   func(testing.TB, ...natstest.Option) *natstest.Node
		restart func(*natstest.Node)
	}{
		{"stop and restart", natstest.Start, func(n *natstest.Node) {
			n.Stop()
			n.Stop()
			n.Restart()
		}},
		{"restart alone", natstest.Start, (*natstest.Node).Restart},
		{"process, stop and restart", natstest.StartProcess, func(n *natstest.Node) {
			n.Stop()
			n.Restart()
		}},
		{"process, kill and restart", natstest.StartProcess, func(n *natstest.Node) {
			n.Kill()
			n.Restart()
		}},
		{"process, stop while paused", natstest.StartProcess, func(n *natstest.Node) {
			n.Pause()
			n.Stop()
			n.Restart()
		}},
		{"process, kill while paused", natstest.StartProcess, func(n *natstest.Node) {
			n.Pause()
			n.Kill()
			n.Restart()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := c.start(t)
			url := server.URL()
			js := createStream(t, server.Connect(t), 1)
			if ack := publish(t, js, "a"); ack.Sequence != 1 || ack.Duplicate {
				t.Errorf("first: %+v", ack)
			}

			c.restart(server)

			if server.URL() != url {
				t.Errorf("%s became %s", url, server.URL())
			}
			// The client is the one from before the restart; it has reconnected automatically.
			if ack := publish(t, js, "a"); ack.Sequence != 1 || !ack.Duplicate {
				t.Errorf("repeat: %+v", ack)
			}
			if ack := publish(t, js, "b"); ack.Sequence != 2 || ack.Duplicate {
				t.Errorf("second: %+v", ack)
			}
			s, err := js.Stream(t.Context(), "S")
			if err != nil {
				t.Fatal(err)
			}
			if msg, err := s.GetMsg(t.Context(), 1); err != nil || string(msg.Data) != "a" {
				t.Errorf("message 1: %v, %v", msg, err)
			}
		})
	}
}

func TestFolderIsLockedByAProcess(t *testing.T) {
	t.Parallel()
	server := natstest.StartProcess(t)
	other, err := embednats.Start(embednats.Options{StoreDir: server.StoreDir(), NoListener: true})
	if err == nil {
		other.Shutdown()
		t.Fatal("a second server started")
	}
	if !strings.Contains(err.Error(), server.StoreDir()) {
		t.Error(err)
	}
	server.Kill()
	other, err = embednats.Start(embednats.Options{StoreDir: server.StoreDir(), NoListener: true})
	if err != nil {
		t.Fatal(err)
	}
	other.Shutdown()
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, start := range []func(testing.TB, ...natstest.Option) *natstest.Node{
		natstest.Start, natstest.StartProcess,
	} {
		server := start(t, func(o *embednats.Options) {
			o.MaxPayload = 100
		}, func(o *embednats.Options) { o.Name = "mine" })
		nc := server.Connect(t)
		if nc.MaxPayload() != 100 || nc.ConnectedServerName() != "mine" {
			t.Errorf("max payload %d, name %s", nc.MaxPayload(), nc.ConnectedServerName())
		}
	}
}

func TestPausedProcessDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := natstest.StartProcess(t)
	nc := server.Connect(t)
	if err := nc.FlushTimeout(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	server.Pause()
	if err := nc.FlushTimeout(100 * time.Millisecond); err == nil {
		t.Error("it answered")
	}
	server.Resume()
	server.Resume()
	if err := nc.FlushTimeout(5 * time.Second); err != nil {
		t.Error(err)
	}
	if n := nc.Stats().Reconnects; n != 0 {
		t.Errorf("%d reconnects", n)
	}
}

func TestClusterSurvivesTheLossOfALeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		start func(testing.TB, int, ...natstest.Option) *natstest.Cluster
		lose  func(*natstest.Cluster, int)
	}{
		{"stop", natstest.StartCluster, (*natstest.Cluster).Stop},
		{"process, kill", natstest.StartProcessCluster, func(c *natstest.Cluster, i int) {
			c.Node(i).Kill()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := c.start(t, 3)
			js := createStream(t, cluster.Connect(t), 3)
			publish(t, js, "a")

			first := cluster.Leader("S")
			c.lose(cluster, first)

			if ack := publish(t, js, "a"); !ack.Duplicate {
				t.Errorf("repeat: %+v", ack)
			}
			second := cluster.Leader("S")
			if second == first {
				t.Errorf("node %d leads, but it is gone", first)
			}
			if ack := publish(t, js, "b"); ack.Sequence != 2 {
				t.Errorf("second: %+v", ack)
			}

			cluster.Restart(first)
			nc := cluster.Node(first).Connect(t)
			if nc.ConnectedUrl() != cluster.Node(first).URL() ||
				!strings.Contains(cluster.URLs(), nc.ConnectedUrl()) {
				t.Errorf("connected to %s", nc.ConnectedUrl())
			}
			if ack := publish(t, js, "c"); ack.Sequence != 3 {
				t.Errorf("third: %+v", ack)
			}
		})
	}
}

var orphan = flag.String("orphan", "",
	"for TestChildEndsWithItsParent: start a server process, \"running\" or \"paused\", and wait "+
		"to be killed")

// After a cluster has started, no node has an empty folder of streams. The server would remove an
// empty folder some time after its last stream was deleted, even while it is creating another
// stream there.
func TestTheFolderOfStreamsIsNotEmpty(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3)
	for i := range 3 {
		folder := filepath.Join(cluster.Node(i).StoreDir(), "jetstream", "$G", "streams")
		if err := os.Remove(folder); !errors.Is(err, syscall.ENOTEMPTY) {
			t.Errorf("removing the folder of server %d: %v", i, err)
		}
	}
}

func TestChildEndsWithItsParent(t *testing.T) {
	t.Parallel()
	if *orphan != "" {
		server := natstest.StartProcess(t)
		if *orphan == "paused" {
			server.Pause()
		}
		if _, err := io.WriteString(os.Stderr, server.URL()); err != nil {
			t.Fatal(err)
		}
		_ = os.Stderr.Close()
		_, _ = io.Copy(io.Discard, os.Stdin) // never returns
		return
	}

	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"running", "paused"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			parent := exec.Command(binary, "-test.run=^TestChildEndsWithItsParent$",
				"-orphan="+state)
			// The process parent is killed, so it does not remove its temporary folder. Put that
			// folder into one that this test removes.
			parent.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
			stdin, err := parent.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			stderr, err := parent.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			url, err := io.ReadAll(stderr)
			killErr := parent.Process.Kill()
			_ = parent.Wait() // an error is expected: the process was killed
			if err != nil || killErr != nil {
				t.Fatal(err, killErr)
			}

			addr, ok := strings.CutPrefix(string(url), "nats://")
			if !ok {
				t.Fatalf("no server: %s", url)
			}
			eventually(t, "the server at "+addr+" is to end", func() error {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					return nil //nolint:nilerr // refused: it has ended
				}
				_ = conn.Close()
				return os.ErrExist
			})
		})
	}
}
