package soak

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// The first report of an execution gives its final status, and an unreadable one gives failed, as
// executors record it. Only a readable report ends the time in which runners may run the execution.
func TestAnUnreadableReportIsAFinalStatus(t *testing.T) {
	reported := time.Date(2026, 11, 27, 8, 26, 46, 0, time.UTC)
	for name, c := range map[string]struct {
		unreadableFirst bool
		want            execution.Status
	}{
		"unreadable report first": {true, execution.Failed},
		"readable report first":   {false, execution.Succeeded},
	} {
		id := uuid.NewString()
		readable, err := stream.ProgressMessage("default", "soak-0", "node", "",
			execution.Progress{ID: id, Status: execution.Succeeded, At: reported})
		if err != nil {
			t.Fatal(err)
		}
		unreadable := nats.NewMsg(readable.Subject)
		unreadable.Data = []byte(unreadableReport)
		messages := []*nats.Msg{readable, unreadable}
		if c.unreadableFirst {
			messages = []*nats.Msg{unreadable, readable}
		}
		all := newStreamContents()
		for _, msg := range messages {
			meta := &jetstream.MsgMetadata{Timestamp: reported}
			if err := all.addMessage(storedMsg{msg: msg}, meta); err != nil {
				t.Fatal(err)
			}
		}
		if got := all.finalStatuses[id]; got != c.want {
			t.Errorf("%s: the final status is %q, want %q", name, got, c.want)
		}
		if got := all.finalStatusTimes[id]; !got.Equal(reported) {
			t.Errorf("%s: it is from %s, want %s", name, got, reported)
		}
	}
}

// storedMsg is a message of a stream, of which only the subject, the headers and the data are used.
type storedMsg struct {
	jetstream.Msg
	msg *nats.Msg
}

func (m storedMsg) Subject() string      { return m.msg.Subject }
func (m storedMsg) Headers() nats.Header { return m.msg.Header }
func (m storedMsg) Data() []byte         { return m.msg.Data }
