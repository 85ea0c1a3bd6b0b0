package changes

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// announcement returns the message with which another process announces changes. publisher
// identifies that process, and number is the number of the announcement.
func announcement(t *testing.T, publisher string, number uint64, ids ...string) *nats.Msg {
	t.Helper()
	data, err := proto.Marshal(&hookstartv1.ExecutionsChanged{
		ExecutionIds: ids, Publisher: publisher, Number: number,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &nats.Msg{Subject: subject, Data: data}
}

// An announcement of another process does not reach this one, although neither has lost its
// connection. When the next announcement or heartbeat of the other process arrives, this process
// ends its watches.
func TestWatchesEndWhenAnAnnouncementDidNotArrive(t *testing.T) {
	t.Parallel()
	c, err := New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	c.receive(announcement(t, "", 0, "of an earlier version"))
	c.receive(announcement(t, "a", 7, "before"))
	for _, step := range []struct {
		what string
		msg  *nats.Msg
		told []string
		ends bool
	}{
		{"the next one", announcement(t, "a", 8, "x"), []string{"x"}, false},
		{"a heartbeat", announcement(t, "a", 8), nil, false},
		{"the next one after a heartbeat", announcement(t, "a", 9, "x"), []string{"x"}, false},
		{"one after the next", announcement(t, "a", 11, "x"), nil, true},
		{"a heartbeat after one that did not arrive", announcement(t, "a", 12), nil, true},
		{"the first heartbeat of another process", announcement(t, "b", 4), nil, false},
		{"its next announcement", announcement(t, "b", 5, "x"), []string{"x"}, false},
		{"one without a number", announcement(t, "", 0, "x"), []string{"x"}, false},
	} {
		w := c.Watch(time.Time{})
		c.receive(step.msg)
		var told []string
		ended := false
		select {
		case batch, open := <-w.Batches:
			told, ended = batch.IDs, !open
		default:
		}
		if ended != step.ends || !slices.Equal(told, step.told) {
			t.Errorf("%s: told %q, the watch has ended: %v", step.what, told, ended)
		}
		resumed := c.Watch(w.Since)
		if resumed.CatchUpComplete == step.ends {
			t.Errorf("%s: a client that resumes has all: %v", step.what, resumed.CatchUpComplete)
		}
		resumed.Cancel()
		w.Cancel()
	}
}

// In its heartbeats, a Notifier repeats the number of its last announcement.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newNotifier(nc, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	w := c.Watch(time.Time{})
	defer w.Cancel()
	if err := c.Publish([]string{"x"}); err != nil {
		t.Fatal(err)
	}
	if batch := <-w.Batches; !slices.Equal(batch.IDs, []string{"x"}) {
		t.Errorf("told %q", batch.IDs)
	}
	for heartbeats := 0; heartbeats < 2; {
		msg, err := sub.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var got hookstartv1.ExecutionsChanged
		if err := proto.Unmarshal(msg.Data, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.GetExecutionIds()) == 0 && got.GetNumber() == 1 {
			heartbeats++
		}
	}
	select {
	case batch, open := <-w.Batches:
		t.Errorf("a heartbeat was told to watchers: %v, %v", batch, open)
	default:
	}
}
