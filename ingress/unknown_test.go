package ingress

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// If a request without a delivery ID gets no confirmation from the stream, its message may have
// been stored. The response then has the outcome "unknown" and the execution ID. It has neither if
// the message was certainly not stored, or if the request has a delivery ID and can therefore be
// sent again safely.
func TestALostConfirmationIsSaidToBeUnknown(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	js, err := jetstream.New(node.Connect(t))
	if err == nil {
		err = stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings)
	}
	if err != nil {
		t.Fatal(err)
	}
	network := node.NewProxy(t)
	nc, err := nats.Connect(network.URL(), nats.ReconnectBufSize(-1), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	p, err := publish.New(t.Context(), nc, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	h, token, _, _, _ := tryHandler(t, alwaysValid{})
	h.publisher = p
	refused := func(deliveryID string) (outcome, executionID string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/webhooks/wf?token="+token, nil)
		r.Header.Set("X-Webhook-Delivery-Id", deliveryID)
		response := httptest.NewRecorder()
		h.router().ServeHTTP(response, r)
		var body map[string]any
		if err := json.Unmarshal(response.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		if response.Code != http.StatusServiceUnavailable || body["code"] != "unavailable" ||
			body["retryable"] != true || response.Header().Get("Retry-After") != "2" {
			t.Errorf("%d %s", response.Code, response.Body)
		}
		outcome, _ = body["outcome"].(string)
		executionID, _ = body["executionId"].(string)
		if id := response.Header().Get(webhook.HeaderExecutionID); id != executionID {
			t.Errorf("executionId %q, in the header %q", executionID, id)
		}
		return outcome, executionID
	}
	network.Silence()
	outcome, id := refused("")
	if outcome != "unknown" || id == "" {
		t.Errorf("without a delivery ID: outcome %q, executionId %q", outcome, id)
	}
	if outcome, id := refused("1"); outcome != "" || id != "" {
		t.Errorf("with a delivery ID: outcome %q, executionId %q", outcome, id)
	}
	network.Heal() // the messages arrive late, and are stored
	consumer, err := js.OrderedConsumer(t.Context(), stream.ExecutionsName,
		jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next(jetstream.FetchMaxWait(20 * time.Second))
	if err != nil || msg.Headers().Get(stream.HeaderExecutionID) != id {
		t.Errorf("stored later: %v, %v", msg, err)
	}
	network.Cut()
	for nc.IsConnected() {
		<-time.After(time.Millisecond)
	}
	if outcome, id := refused(""); outcome != "" || id != "" {
		t.Errorf("without a connection: outcome %q, executionId %q", outcome, id)
	}
}
