package report_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/ingress/internal/report"
	"github.com/hookstart/hookstart/shared/stream"
)

// filteredReport reads reports until they count at least want requests in total, and returns the
// counts, keyed by "WORKFLOW.NODE".
func (r *rig) filteredReport(want int64) map[string]stream.FilteredCount {
	r.t.Helper()
	consumer, err := r.js.OrderedConsumer(r.t.Context(), stream.ReportsName,
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{stream.FilteredSubject}})
	r.check(err)
	all := map[string]stream.FilteredCount{}
	for total := int64(0); total < want; {
		msg, err := consumer.Next(jetstream.FetchMaxWait(20 * time.Second))
		r.check(err)
		_, _, nodes, err := stream.DecodeFiltered(msg.Data())
		r.check(err)
		for _, n := range nodes {
			total += n.Count
			key := n.WorkflowID + "." + n.NodeID
			n.Count += all[key].Count
			n.Last = append(n.Last, all[key].Last...)
			all[key] = n
		}
	}
	return all
}

func TestFilteredByNode(t *testing.T) {
	r := start(t)
	filtered := report.NewFilteredRequestCounter(r.js, r.log)
	stop := r.run(filtered.Run)
	for n := range 50 {
		filtered.Count("wf", "node", stream.FilteredRequest{
			At:         noon.Add(time.Duration(n) * time.Second),
			DeliveryID: fmt.Sprint(n),
			Place:      "ptr:/a",
		})
	}
	filtered.Count("wf", "other", stream.FilteredRequest{At: noon, Place: "query:b"})
	stop()
	got := r.filteredReport(51)
	node, other := got["wf.node"], got["wf.other"]
	if node.Count != 50 || len(node.Last) < 20 || node.Last[0].DeliveryID != "49" ||
		node.Last[19].DeliveryID != "30" || !node.Last[0].At.Equal(noon.Add(49*time.Second)) {
		t.Errorf("%+v", node)
	}
	if other.Count != 1 || len(other.Last) != 1 ||
		other.Last[0] != (stream.FilteredRequest{At: noon, Place: "query:b"}) {
		t.Errorf("%+v", other)
	}
}

// A report fits into a NATS message no matter how many requests are filtered. Requests beyond the
// maximum are counted without details.
func TestReportsOfFilteredRequestsAreBounded(t *testing.T) {
	r := start(t)
	r.nats.Stop() // makes counts accumulate
	filtered := report.NewFilteredRequestCounter(r.js, r.log)
	stop := r.run(filtered.Run)
	for n := range 1200 {
		for range 20 {
			filtered.Count(fmt.Sprintf("%s%04d", strings.Repeat("w", 60), n),
				strings.Repeat("n", 64), stream.FilteredRequest{
					At:         noon,
					DeliveryID: strings.Repeat("d", 255),
					Place:      strings.Repeat("p", stream.MaxFilteredPlaceBytes),
				})
		}
	}
	r.nats.Restart()
	defer stop()
	js, err := jetstream.New(r.nats.Connect(t))
	r.check(err)
	consumer, err := js.OrderedConsumer(t.Context(), stream.ReportsName,
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{stream.FilteredSubject}})
	r.check(err)
	for total := int64(0); total < 20_000; {
		msg, err := consumer.Next(jetstream.FetchMaxWait(20 * time.Second))
		r.check(err)
		_, _, nodes, err := stream.DecodeFiltered(msg.Data())
		r.check(err)
		requests := 0
		for _, node := range nodes {
			total += node.Count
			requests += len(node.Last)
		}
		if len(nodes) > 1000 || requests > 700 || len(msg.Data()) > 900_000 {
			t.Errorf("a report of %d bytes has %d nodes and %d requests", len(msg.Data()),
				len(nodes), requests)
		}
	}
}
