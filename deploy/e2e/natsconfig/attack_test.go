package natsconfig

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

// The target contains these texts. An attacker has succeeded if it receives one of the first three,
// or changes the message that contains the last one.
const (
	secretToken   = "the-token-nobody-may-read"
	secretInput   = "the-input-of-another-queue"
	secretTraffic = "what-others-say-to-each-other"
	record        = "the-record-as-it-was"
)

// registryCopy is the subject prefix of the JetStream API for the registry's copy, as accounts.conf
// sets it up. Executors are given it in --registry-copy.
const registryCopy = "FEED.API"

// target is an installation that an attacker tries to read from and to damage.
type target struct {
	*site
	tb    testing.TB
	admin *nats.Conn
	js    jetstream.JetStream
	// ack is the subject that acknowledges a message that executors have received but not yet
	// recorded.
	ack string

	mu    sync.Mutex
	heard []string // messages on hookstart's own subjects
}

// makeStreams creates the same streams and consumer as an executor that starts with
// --registry-copy=FEED.API and --runner-groups=default/main.
func makeStreams(tb testing.TB, nc *nats.Conn) jetstream.JetStream {
	tb.Helper()
	js, err := jetstream.New(nc)
	if err == nil {
		err = stream.EnsureSharedStreams(tb.Context(), js, stream.DefaultSettings)
	}
	if err == nil {
		err = stream.EnsureReportsStream(tb.Context(), js, 1)
	}
	if err == nil {
		err = stream.EnsureCancellationsBucket(tb.Context(), js, stream.DefaultSettings)
	}
	if err == nil {
		err = edit.EnsureBuckets(tb.Context(), js, 1)
	}
	if err == nil {
		err = edit.EnsureMirror(tb.Context(), copyOf(tb, nc), 1)
	}
	if err == nil {
		group := stream.RunnerGroup{Queue: "default", Group: "main"}
		_, err = stream.EnsureConsumer(tb.Context(), js, group.ConsumerConfig(stream.RunnerAckWait))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// makeOwn gives the queues "default" and "gpu" their own streams and runner consumers, as an
// executor does.
func makeOwn(tb testing.TB, js jetstream.JetStream) {
	tb.Helper()
	for _, queue := range []string{"default", "gpu"} {
		err := stream.EnsureOwnStreams(tb.Context(), js, stream.DefaultSettings, queue,
			stream.QueueStreamLimits{})
		if err == nil {
			group := stream.RunnerGroup{Queue: queue, Group: "main"}
			config := group.ConsumerConfigForLayout(stream.Layout{Own: true}, stream.RunnerAckWait)
			if queue == "gpu" {
				config.AckWait = time.Hour // no message is redelivered while a test runs
			}
			_, err = stream.EnsureConsumer(tb.Context(), js, config)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// copyOf returns the JetStream API of the account with the registry's copy.
func copyOf(tb testing.TB, nc *nats.Conn) jetstream.JetStream {
	tb.Helper()
	js, err := jetstream.NewWithAPIPrefix(nc, registryCopy)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

func newTarget(tb testing.TB) *target {
	tb.Helper()
	t := &target{site: startOne(tb), tb: tb}
	js := makeStreams(tb, t.connect(tb, "executor"))
	makeOwn(tb, js)
	t.admin = t.connect(tb, "admin")
	var err error
	if t.js, err = jetstream.New(t.admin); err != nil {
		tb.Fatal(err)
	}
	ctx := tb.Context()
	for bucket, value := range map[string]string{
		registry.Bucket:        record,
		registry.SecretsBucket: secretToken,
	} {
		kv, err := js.KeyValue(ctx, bucket)
		if err == nil {
			_, err = kv.PutString(ctx, "workflow.a", value)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	for _, subject := range []string{
		"executions.start.default.wf.node", "executions.start.gpu.wf.node",
		"executions.queue.default.start.wf.node", "executions.queue.gpu.start.wf.node",
	} {
		if _, err := t.js.Publish(ctx, subject, []byte(secretInput)); err != nil {
			tb.Fatal(err)
		}
	}
	// These consumers redeliver no message while a test runs, because their ack wait is an hour.
	for name, filter := range map[string]string{
		"executor":        "",
		"runner-gpu-main": "executions.start.gpu.>",
	} {
		if _, err := t.js.CreateConsumer(ctx, stream.ExecutionsName, jetstream.ConsumerConfig{
			Durable:       name,
			FilterSubject: filter,
			AckPolicy:     jetstream.AckExplicitPolicy,
			AckWait:       time.Hour,
		}); err != nil {
			tb.Fatal(err)
		}
	}
	consumer, err := t.js.Consumer(ctx, stream.ExecutionsName, "executor")
	if err != nil {
		tb.Fatal(err)
	}
	msg, err := consumer.Next()
	if err != nil {
		tb.Fatal(err)
	}
	t.ack = msg.Reply()
	if _, err := t.admin.Subscribe("hookstart.>", func(m *nats.Msg) {
		if !bytes.Contains(m.Data, []byte(secretTraffic)) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.heard = append(t.heard, "heard: "+m.Subject+" "+string(m.Data))
		}
	}); err != nil {
		tb.Fatal(err)
	}
	return t
}

// state returns everything that an attack could change, one item per line: streams, messages,
// consumers with their positions, and the messages that the listeners of the target received. It
// omits everything that a role may change: messages with "allowed" in their subject, and the
// position of the consumer of the runner.
func (t *target) state() []string {
	ctx := t.tb.Context()
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	asJSON := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.tb.Fatal(err)
		}
		return string(text)
	}
	streams := t.js.ListStreams(ctx)
	for info := range streams.Info() {
		add("stream %s: %s", info.Config.Name, asJSON(info.Config))
		s, err := t.js.Stream(ctx, info.Config.Name)
		if err != nil {
			continue // deleted in the meantime; the next state will not include it
		}
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			msg, err := s.GetMsg(ctx, seq)
			if err == nil && strings.HasPrefix(info.Config.Name, "KV_") {
				// Skip earlier revisions, which are kept for the audit.
				if newest, err := s.GetLastMsgForSubject(ctx, msg.Subject); err == nil &&
					newest.Sequence != seq {
					continue
				}
			}
			if err == nil && !strings.Contains(msg.Subject, "allowed") {
				add("%s holds %s: %q", info.Config.Name, msg.Subject, msg.Data)
			}
		}
		for c := range s.ListConsumers(ctx).Info() {
			add("consumer %s of %s: %s, paused %t", c.Name, c.Stream, asJSON(c.Config), c.Paused)
			if c.Name != "runner-default-main" {
				add("consumer %s of %s has delivered %d, acknowledged %d, waits for %d", c.Name,
					c.Stream, c.Delivered.Consumer, c.AckFloor.Consumer, c.NumAckPending)
			}
		}
	}
	feed, err := t.admin.Request("FEED.API.STREAM.INFO.KV_registry", nil, 5*time.Second)
	if err != nil {
		t.tb.Fatal(err)
	}
	var info jetstream.StreamInfo
	if err := json.Unmarshal(feed.Data, &info); err != nil {
		t.tb.Fatal(err)
	}
	add("the copy: %s", info.Config.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	lines = append(lines, t.heard...)
	slices.Sort(lines)
	for i, times := 1, 1; i < len(lines); i++ {
		if lines[i] != lines[i-times] {
			times = 1
			continue
		}
		lines[i] += fmt.Sprintf(" (once more, %d)", times)
		times++
	}
	return lines
}

// difference returns the lines that are in only one of the two states, with "- " before the lines
// of before and "+ " before those of after. It returns "" if the states are equal.
func difference(before, after []string) string {
	var changes []string
	for _, line := range before {
		if !slices.Contains(after, line) {
			changes = append(changes, "- "+line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			changes = append(changes, "+ "+line)
		}
	}
	return strings.Join(changes, "\n")
}

// othersTalk produces the traffic of other clients that an attacker may try to overhear: the
// executor reads and writes a token, uses the API and announces a change, and a start message is
// stored.
func (t *target) othersTalk() {
	nc := t.connect(t.tb, "executor")
	js, err := jetstream.New(nc)
	if err == nil {
		var kv jetstream.KeyValue
		if kv, err = js.KeyValue(t.tb.Context(), registry.SecretsBucket); err == nil {
			_, err = kv.Get(t.tb.Context(), "workflow.a")
		}
		if err == nil {
			_, err = kv.PutString(t.tb.Context(), "workflow.a", secretToken)
		}
	}
	if err == nil {
		_, err = js.Publish(t.tb.Context(), "executions.start.allowed.wf.node",
			[]byte(secretTraffic))
	}
	if err == nil {
		err = nc.Publish("hookstart.executions.changed", []byte(secretTraffic))
	}
	if err == nil {
		_, err = nc.Request("$JS.API.STREAM.INFO.EXECUTIONS",
			[]byte(`{"subjects_filter": "`+secretTraffic+`"}`), 10*time.Second)
	}
	if err != nil {
		t.tb.Fatal(err)
	}
}

// attacker is a client that misuses the credentials of a role.
type attacker struct {
	*target
	nc *nats.Conn
	// refused receives a value when the server refuses an action.
	refused chan struct{}

	mu     sync.Mutex
	leaked string
	said   []string
}

func attackBy(t *target, role string) *attacker {
	a := &attacker{target: t, nc: t.connect(t.tb, role), refused: make(chan struct{}, 1)}
	a.nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		a.note(err.Error())
		select {
		case a.refused <- struct{}{}:
		default:
		}
	})
	return a
}

func (a *attacker) note(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if line = strings.TrimPrefix(line, "nats: permissions violation: "); !slices.Contains(a.said,
		line) {
		a.said = append(a.said, line)
	}
}

// answers returns the server's responses to the attacker, as text for the output of the test.
func (a *attacker) answers() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.said) == 0 {
		return "nothing came of it"
	}
	return strings.Join(a.said, "; ")
}

// see sets leaked if a message that the attacker has received contains one of the secrets, as plain
// text or in base64, the form in which the API returns messages.
func (a *attacker) see(m *nats.Msg) {
	for _, secret := range []string{secretToken, secretInput, secretTraffic} {
		if bytes.Contains(m.Data, []byte(secret)) ||
			bytes.Contains(m.Data, []byte(base64.StdEncoding.EncodeToString([]byte(secret)))) {
			a.mu.Lock()
			a.leaked = m.Subject + ": " + secret
			a.mu.Unlock()
		}
	}
}

// request sends a request, and searches all responses for secrets. It returns after the first
// response or after the timeout.
func (a *attacker) request(subject, body string, timeout time.Duration) {
	inbox := nats.NewInbox()
	first := make(chan *nats.Msg, 1)
	sub, err := a.nc.Subscribe(inbox, func(m *nats.Msg) {
		a.see(m)
		select {
		case first <- m:
		default:
		}
	})
	if err != nil {
		a.tb.Fatal(err)
	}
	_ = sub.AutoUnsubscribe(10)
	a.send(subject, inbox, body, nil)
	waiting := time.NewTimer(timeout)
	defer waiting.Stop()
	select {
	case m := <-first:
		answer := string(m.Data)
		if m.Header.Get("Status") == "503" {
			answer = "no responders"
		}
		a.note(fmt.Sprintf("%.160s", answer))
	case <-a.refused:
	case <-waiting.C:
		a.note("no answer")
	}
}

// send publishes a message, and returns once the server has processed it.
func (a *attacker) send(subject, reply, body string, header nats.Header) {
	err := a.nc.PublishMsg(&nats.Msg{
		Subject: subject,
		Reply:   reply,
		Data:    []byte(body),
		Header:  header,
	})
	if err == nil {
		err = a.nc.FlushTimeout(5 * time.Second)
	}
	if err != nil {
		a.note(err.Error())
	}
}

// listen subscribes to a subject, and then lets other clients produce traffic.
func (a *attacker) listen(subject string) {
	if _, err := a.nc.Subscribe(subject, a.see); err != nil {
		a.tb.Fatal(err)
	}
	if err := a.nc.FlushTimeout(5 * time.Second); err != nil {
		a.tb.Fatal(err)
	}
	a.othersTalk()
}

// result describes the effect of an attack so far: a secret that the attacker has seen, or the
// difference between the target's current state and before, its state before the attack. It returns
// "" if there is no effect.
func (a *attacker) result(before []string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaked != "" {
		return a.leaked
	}
	return difference(before, a.state())
}
