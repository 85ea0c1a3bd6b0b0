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

// An execution with both an unreadable report and a readable one may be recorded as failed or with
// the status in the readable report, depending on which report the executors recorded first. Any
// other recorded status is a finding, and so is any difference from the reported status if there is
// no unreadable report.
func TestUnreadableAndReadableReport(t *testing.T) {
	id := uuid.NewString()
	readable, err := stream.ProgressMessage("default", "soak-0", "node", "",
		execution.Progress{ID: id, Status: execution.Succeeded, At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	unreadable := nats.NewMsg(readable.Subject)
	unreadable.Data = []byte(unreadableReport)
	both := []*nats.Msg{unreadable, readable}
	for name, c := range map[string]struct {
		reports []*nats.Msg
		status  execution.Status // the recorded one
		want    string
	}{
		"both, recorded as failed":     {both, execution.Failed, ""},
		"both, recorded as succeeded":  {both, execution.Succeeded, ""},
		"both, recorded as canceled":   {both, execution.Canceled, "wrong"},
		"readable, recorded as failed": {[]*nats.Msg{readable}, execution.Failed, "wrong"},
	} {
		all := newStreamContents()
		all.starts[id] = storedStart{marker: "m", messageCount: 1}
		for _, msg := range c.reports {
			if err := all.addMessage(storedMsg{msg: msg}, &jetstream.MsgMetadata{}); err != nil {
				t.Fatal(err)
			}
		}
		a := &ledgerAuditResult{}
		a.auditFinalStatuses(newLedger(), all,
			map[string]recordSummary{id: {count: 1, status: c.status}}, nil)
		if got := found(a); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// storedMsg is a message of a stream that has only a subject, headers and data. The other methods
// of jetstream.Msg must not be called.
type storedMsg struct {
	jetstream.Msg
	msg *nats.Msg
}

func (m storedMsg) Subject() string      { return m.msg.Subject }
func (m storedMsg) Headers() nats.Header { return m.msg.Header }
func (m storedMsg) Data() []byte         { return m.msg.Data }
