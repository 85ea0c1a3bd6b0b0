package natsconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// attempt is an action that a role must not be able to perform.
type attempt struct {
	name  string
	roles string // the roles that try it: r(unner), i(ngress), e(xecutor)
	do    func(a *attacker)
	// by is the time that the action may take to have an effect. 0 means hardlyAnyTime.
	by time.Duration
	// brings is a text that attacker.result contains once the action itself has had its effect. It
	// is set only if the preparations for the action already have a visible effect; otherwise it is
	// "". TestEveryAttemptWouldBeSeen waits for this text.
	brings string
	// control is another action with the same effect as do. It is set if do fails even with all
	// permissions. TestEveryAttemptWouldBeSeen then runs control instead of do, with all
	// permissions, to prove that TestDenied would notice the effect.
	control func(a *attacker)
}

// hardlyAnyTime is the time that a server on the same machine may take to process a request that it
// has received.
const hardlyAnyTime = 25 * time.Millisecond

// heartbeats is the duration of an attempt that uses push: in this time, the consumer that push
// creates sends two idle heartbeats.
const heartbeats = 250 * time.Millisecond

// answerTimeout is the time that an attempt waits for a response. Most attempts get none.
const answerTimeout = 200 * time.Millisecond

func request(subject, body string) func(*attacker) {
	return func(a *attacker) { a.request(subject, body, answerTimeout) }
}

func publish(subject string) func(*attacker) {
	return func(a *attacker) { a.send(subject, "", "written by an attacker", nil) }
}

func listening(subject string) func(*attacker) {
	return func(a *attacker) { a.listen(subject) }
}

// answerTo returns an action that sends a permitted request whose reply subject is the forbidden
// subject victim, so that the server would send its response there.
func answerTo(victim, subject, body string) func(*attacker) {
	return func(a *attacker) { a.send(subject, victim, body, nil) }
}

// push returns an action that creates a push consumer whose delivery subject is victim. The server
// would send the registry's messages, or the consumer's heartbeats, to that subject.
func push(victim, name string) func(*attacker) {
	return func(a *attacker) {
		a.request("$JS.API.CONSUMER.CREATE.KV_registry."+name,
			fmt.Sprintf(`{"stream_name": "KV_registry", "config": {"name": %q,
			"deliver_policy": "all", "deliver_subject": %q, "ack_policy": "explicit", "idle_heartbeat": 100000000}}`, name, victim), answerTimeout)
	}
}

// watched returns an action that runs do while another client, which has the necessary permission,
// listens to the subject.
func watched(subject string, do func(*attacker)) func(*attacker) {
	return func(a *attacker) {
		sub, err := a.admin.Subscribe(subject, func(*nats.Msg) {})
		if err == nil {
			err = a.admin.Flush()
		}
		if err != nil {
			a.tb.Fatal(err)
		}
		a.tb.Cleanup(func() { _ = sub.Unsubscribe() })
		do(a)
	}
}

// consumer returns an action that creates a durable consumer of the stream, and fetches the first
// message from it. filter is the consumer's subject filter; "" means all messages.
func consumer(stream, name, filter string) func(*attacker) {
	return func(a *attacker) {
		config := fmt.Sprintf(`{"stream_name": %q, "config": {"durable_name": %q, "ack_policy": "explicit", "filter_subject": %q}}`, stream, name, filter)
		subject := "$JS.API.CONSUMER.CREATE." + stream + "." + name
		if filter != "" {
			subject += "." + filter
		}
		a.request(subject, config, answerTimeout)
		a.request("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+name, `{"batch": 1, "no_wait": true}`,
			answerTimeout)
	}
}

// These are the subjects of requests that the runner or the ingress may make. An attacker could try
// to direct the server's response to a forbidden subject.
const (
	runnerInfo    = "$JS.API.CONSUMER.INFO.EXECUTIONS.runner-default-main"
	runnerNext    = "$JS.API.CONSUMER.MSG.NEXT.EXECUTIONS.runner-default-main"
	runnerOwnNext = "$JS.API.CONSUMER.MSG.NEXT.QUEUE_default.runner-default-main"
	runnerTells   = "executions.progress.default.allowed.execution"
	runnerCancels = "$JS.API.STREAM.MSG.GET.KV_cancellations"
	ingressInfo   = "$JS.API.STREAM.INFO.KV_registry"
	ingressGet    = "$JS.API.DIRECT.GET.EXECUTIONS"
	ingressPuts   = "executions.start.default.allowed.node"

	aRecord = "$KV.registry.workflow.a"
	aSecret = "$KV.registry_secrets.workflow.a"
	aStart  = "executions.start.default.wf.forged"
)

var attempts = []attempt{
	// Attempts to read messages.
	{
		name:  "read a token directly",
		roles: "ri",
		do:    request("$JS.API.DIRECT.GET.KV_registry_secrets."+aSecret, ""),
	},
	{
		name:  "read a token from the stream",
		roles: "ri",
		do:    request("$JS.API.STREAM.MSG.GET.KV_registry_secrets", `{"seq": 1}`),
	},
	// Executors may do this, because they copy the buckets into the database.
	{
		name:  "read a token by a consumer",
		roles: "ri",
		do:    consumer("KV_registry_secrets", "mine", ""),
	},
	{name: "listen to what is written to buckets", roles: "rie", do: listening("$KV.>")},
	{name: "listen to answers for others", roles: "ri", do: listening("_INBOX.>")},
	{name: "listen to JetStream's API", roles: "rie", do: listening("$JS.API.>")},
	{name: "listen to executions", roles: "rie", do: listening("executions.>")},
	{name: "listen to hookstart's own subjects", roles: "ri", do: listening("hookstart.>")},
	{name: "listen to everything", roles: "rie", do: listening(">")},
	{
		// Executors may do this: they must query the stream's leader, because only the leader is
		// sure to know that a message is missing.
		name:  "read an execution from the stream",
		roles: "ri",
		do:    request("$JS.API.STREAM.MSG.GET.EXECUTIONS", `{"seq": 2}`),
	},
	{
		name:  "read another queue's execution directly",
		roles: "r",
		do:    request(ingressGet, `{"seq": 2}`),
	},
	{
		name:  "read another queue by its consumer",
		roles: "rie",
		do: request("$JS.API.CONSUMER.MSG.NEXT.EXECUTIONS.runner-gpu-main",
			`{"batch": 1, "no_wait": true}`),
	},
	// Executors may create such a consumer, because they create those of runner groups. The attempt
	// "read another queue by its consumer" shows that they cannot fetch messages from it.
	{
		name:  "read another queue by a consumer of one's own",
		roles: "ri",
		do:    consumer("EXECUTIONS", "mine", "executions.start.gpu.>"),
	},
	{
		name:  "read all executions by a consumer of one's own",
		roles: "rie",
		do:    consumer("EXECUTIONS", "mine", ""),
	},
	{
		name:  "read another queue's own stream directly",
		roles: "r",
		do:    request("$JS.API.DIRECT.GET.QUEUE_gpu", `{"seq": 1}`),
	},
	{
		name:  "read its own queue's stream past its consumer",
		roles: "r",
		do:    request("$JS.API.DIRECT.GET.QUEUE_default", `{"seq": 1}`),
	},
	{
		name:  "read another queue's own stream by its consumer",
		roles: "rie",
		do: request("$JS.API.CONSUMER.MSG.NEXT.QUEUE_gpu.runner-gpu-main",
			`{"batch": 1, "no_wait": true}`),
	},
	{
		name:  "read another queue's own stream by a consumer of one's own",
		roles: "ri",
		do:    consumer("QUEUE_gpu", "mine", "executions.queue.gpu.start.>"),
	},
	{
		name:  "read its queue's own stream by a consumer of one's own",
		roles: "ri",
		do:    consumer("QUEUE_default", "mine", "executions.queue.default.start.>"),
	},
	{
		name:  "read a token by its sequence",
		roles: "ri",
		do:    request("$JS.API.DIRECT.GET.KV_registry_secrets", `{"seq": 1}`),
	},
	{
		name:  "take the executors' messages",
		roles: "ri",
		do: request("$JS.API.CONSUMER.MSG.NEXT.EXECUTIONS.executor",
			`{"batch": 1, "no_wait": true}`),
	},

	// Attempts to write messages.
	{name: "publish a start", roles: "r", do: publish(aStart)},
	{name: "publish a rejection", roles: "re", do: publish("executions.rejected.default.wf.node")},
	// Executors may do this, because they end executions that no runner received.
	{name: "publish progress", roles: "i", do: publish("executions.progress.default.wf.execution")},
	{
		name:  "publish progress of another queue",
		roles: "r",
		do:    publish("executions.progress.gpu.wf.execution"),
	},
	{
		name:  "publish a start into its own stream",
		roles: "r",
		do:    publish("executions.queue.default.start.wf.forged"),
	},
	{
		name:  "publish a rejection into an own stream",
		roles: "re",
		do:    publish("executions.queue.default.rejected.wf.node"),
	},
	{
		name:  "make an own stream take a start for a repeat",
		roles: "ri",
		do:    publish("executions.queue.default.remembered.wf"),
	},
	{
		name:  "make the stream take a start for a repeat",
		roles: "ri",
		do:    publish("executions.remembered.default.wf"),
	},
	{
		name:  "publish progress into an own stream",
		roles: "i",
		do:    publish("executions.reports.default.wf.execution"),
	},
	{
		name:  "publish progress into another queue's own stream",
		roles: "r",
		do:    publish("executions.reports.gpu.wf.execution"),
	},
	{name: "publish a report of repeats", roles: "re", do: publish("reports.duplicates")},
	{name: "publish a report of refusals", roles: "re", do: publish("reports.refusals")},
	{name: "publish a report of senders", roles: "re", do: publish("reports.senders")},
	{name: "publish a report of filtered requests", roles: "re", do: publish("reports.filtered")},
	{name: "publish another report", roles: "rie", do: publish("reports.other")},
	{name: "write the registry", roles: "ri", do: publish(aRecord)},
	{name: "write a token", roles: "ri", do: publish(aSecret)},
	{name: "cancel an execution", roles: "ri", do: publish("$KV.cancellations.execution")},
	{name: "announce a process", roles: "r", do: publish("hookstart.presence")},
	{name: "tell of changed records", roles: "ri", do: publish("hookstart.executions.changed")},

	{name: "tell the ingresses what accounts hold", roles: "ri", do: publish("hookstart.storage")},

	// Attempts to write to a forbidden subject by directing a response to it.
	{
		name:  "write the registry by the answer to CONSUMER.INFO",
		roles: "r",
		do:    answerTo(aRecord, runnerInfo, ""),
	},
	{
		name:  "write the registry by the answer to MSG.NEXT",
		roles: "r",
		do:    answerTo(aRecord, runnerNext, `{"batch": 1}`),
	},
	{
		name:  "write the registry by the answer to a question about cancellations",
		roles: "r",
		do:    answerTo(aRecord, runnerCancels, `{"seq": 1}`),
	},
	{
		name:  "write the registry by the PubAck of progress",
		roles: "r",
		do:    answerTo(aRecord, runnerTells, ""),
	},
	{
		name:  "write the registry by the answer to STREAM.NAMES",
		roles: "r",
		do:    answerTo(aRecord, "$JS.API.STREAM.NAMES", `{}`),
	},
	{
		name:  "write the registry by the answer to MSG.NEXT of an own stream",
		roles: "r",
		do:    answerTo(aRecord, runnerOwnNext, `{"batch": 1}`),
	},
	{
		name:  "publish a start by the answer to MSG.NEXT of an own stream",
		roles: "r",
		do:    answerTo(aStart, runnerOwnNext, `{"batch": 1}`),
	},
	{
		name:  "write the registry by the PubAck of progress in an own stream",
		roles: "r",
		do:    answerTo(aRecord, "executions.reports.default.allowed.execution", ""),
	},
	{
		name:  "write the registry by the answer to INFO",
		roles: "ri",
		do:    answerTo(aRecord, "$JS.API.INFO", ""),
	},
	{
		name:  "write the registry by the answer to STREAM.INFO",
		roles: "i",
		do:    answerTo(aRecord, ingressInfo, ""),
	},
	{
		name:  "write the registry by the answer to DIRECT.GET",
		roles: "ri",
		do:    answerTo(aRecord, ingressGet, `{"seq": 1}`),
	},
	{
		name:  "write the registry by the PubAck of a start",
		roles: "i",
		do:    answerTo(aRecord, ingressPuts, ""),
	},
	{
		name:  "write a token by the answer to DIRECT.GET",
		roles: "ri",
		do:    answerTo(aSecret, ingressGet, `{"seq": 1}`),
	},
	{
		name:  "publish a start by the answer to CONSUMER.INFO",
		roles: "r",
		do:    answerTo(aStart, runnerInfo, ""),
	},
	{
		name:  "publish a start by the answer to MSG.NEXT",
		roles: "r",
		do:    answerTo(aStart, runnerNext, `{"batch": 1}`),
	},
	{
		name:  "announce a process by the answer to INFO",
		roles: "r",
		do:    answerTo("hookstart.presence", "$JS.API.INFO", ""),
	},
	{
		name: "acknowledge the executors' messages by an empty answer", roles: "ri",
		do: func(a *attacker) { a.send(runnerNext, a.ack, `{"batch": 10, "no_wait": true}`, nil) },
		// The server refuses an acknowledgement subject as the reply subject of any client, so the
		// control publishes directly to that subject.
		control: func(a *attacker) { a.send(a.ack, "", "", nil) },
	},
	{
		name: "write the registry by a message's trace", roles: "ri",
		do: func(a *attacker) {
			for _, subject := range []string{runnerTells, ingressPuts} {
				a.send(subject, "", "", nats.Header{"Nats-Trace-Dest": {aRecord}})
			}
		},
	},

	// Attempts to make the server send messages to a forbidden subject. The server sends them only
	// if a client subscribes to exactly that subject.
	{
		name:   "take a group's messages by a consumer's deliveries",
		roles:  "ri",
		do:     push("$JS.API.CONSUMER.MSG.NEXT.EXECUTIONS.runner-gpu-main", "p1"),
		by:     heartbeats,
		brings: "runner-gpu-main of EXECUTIONS has delivered 1",
	},
	{
		name:   "take the executors' messages by a consumer's deliveries",
		roles:  "ri",
		do:     push("$JS.API.CONSUMER.MSG.NEXT.EXECUTIONS.executor", "p2"),
		by:     heartbeats,
		brings: "executor of EXECUTIONS has delivered 2",
	},
	{
		name:   "announce a process by a consumer's heartbeats",
		roles:  "ri",
		do:     watched("hookstart.presence", push("hookstart.presence", "p3")),
		by:     heartbeats,
		brings: "+ heard: hookstart.presence",
	},
	{
		name:  "delete the stream by a consumer's heartbeats",
		roles: "ri",
		do: watched("$JS.API.STREAM.DELETE.EXECUTIONS",
			push("$JS.API.STREAM.DELETE.EXECUTIONS", "p4")),
		by:     heartbeats,
		brings: "- stream EXECUTIONS",
	},
	{
		name: "publish starts by a consumer's deliveries", roles: "ri",
		do: watched(aStart, push(aStart, "p5")), by: heartbeats, brings: "+ EXECUTIONS holds",
	},
	{
		name: "acknowledge the executors' messages by a consumer's heartbeats", roles: "ri",
		do: func(a *attacker) {
			watched(a.ack, push(a.ack, "p6"))(a)
		}, by: heartbeats, brings: "acknowledged 1",
	},

	// Attempts to delete, purge, change or create streams.
	{name: "delete the stream", roles: "rie", do: request("$JS.API.STREAM.DELETE.EXECUTIONS", "")},
	{
		name:  "delete a queue's own stream",
		roles: "ri",
		do:    request("$JS.API.STREAM.DELETE.QUEUE_default", ""),
	},
	{
		name:  "delete the reports beside a queue's own stream",
		roles: "ri",
		do:    request("$JS.API.STREAM.DELETE.PROGRESS_default", ""),
	},
	{
		name:  "delete the tokens",
		roles: "rie",
		do:    request("$JS.API.STREAM.DELETE.KV_registry_secrets", ""),
	},
	{
		name:  "delete the stream of reports",
		roles: "rie",
		do:    request("$JS.API.STREAM.DELETE.PROGRESS", ""),
	},
	{
		name:  "delete the registry",
		roles: "rie",
		do:    request("$JS.API.STREAM.DELETE.KV_registry", ""),
	},
	{
		name:  "delete the copy of the registry",
		roles: "rie",
		do:    request("FEED.API.STREAM.DELETE.KV_registry", ""),
	},
	{name: "purge the stream", roles: "rie", do: request("$JS.API.STREAM.PURGE.EXECUTIONS", "")},
	// Executors may do this, because they trim the history of the buckets. This adds no risk: an
	// executor can overwrite the tokens anyway.
	{
		name:  "purge the tokens",
		roles: "ri",
		do:    request("$JS.API.STREAM.PURGE.KV_registry_secrets", ""),
	},
	{
		name:  "delete a message",
		roles: "rie",
		do:    request("$JS.API.STREAM.MSG.DELETE.EXECUTIONS", `{"seq": 1}`),
	},
	{
		name:  "edit the stream",
		roles: "ri",
		do: request("$JS.API.STREAM.UPDATE.REPORTS",
			`{"name": "REPORTS", "subjects": ["stolen.>"], "storage": "file", "retention": "limits", "discard": "old", "num_replicas": 1}`),
	},
	{
		name:  "make a stream",
		roles: "ri",
		do:    request("$JS.API.STREAM.CREATE.MINE", `{"name": "MINE", "subjects": ["mine"]}`),
	},

	// Attempts to delete, pause or change consumers, and to acknowledge their messages.
	{
		name:  "delete the executors' consumer",
		roles: "rie",
		do:    request("$JS.API.CONSUMER.DELETE.EXECUTIONS.executor", ""),
	},
	{
		name:  "delete a group's consumer",
		roles: "rie",
		do:    request("$JS.API.CONSUMER.DELETE.EXECUTIONS.runner-default-main", ""),
	},
	// Executors can do this, because they need the permission to pause queues, and NATS cannot
	// limit that permission to the consumers of runners.
	{
		name:  "pause the executors' consumer",
		roles: "ri",
		do: request("$JS.API.CONSUMER.PAUSE.EXECUTIONS.executor",
			`{"pause_until": "2999-01-01T00:00:00Z"}`),
	},
	{
		name:  "narrow the executors' consumer",
		roles: "ri",
		do: request("$JS.API.CONSUMER.CREATE.EXECUTIONS.executor.executions.start.default.>",
			`{"stream_name": "EXECUTIONS", "config": {"durable_name": "executor", "ack_policy": "explicit", "ack_wait": 3600000000000, "max_ack_pending": 1000, "filter_subject": "executions.start.default.>"}}`),
	},
	{
		name:  "widen a group's consumer",
		roles: "ri",
		do: request("$JS.API.CONSUMER.CREATE.EXECUTIONS.runner-default-main.executions.start.>",
			`{"stream_name": "EXECUTIONS", "config": {"durable_name": "runner-default-main", "ack_policy": "explicit", "ack_wait": 15000000000, "max_ack_pending": 10000, "filter_subject": "executions.start.>"}}`),
	},
	{
		name:  "acknowledge the executors' messages",
		roles: "ri",
		do:    func(a *attacker) { a.send(a.ack, "", "", nil) },
	},
	{
		name:  "acknowledge the executors' messages by the longer form",
		roles: "ri",
		do: func(a *attacker) {
			a.send(strings.Replace(a.ack, shortAcks, longAcks, 1), "", "", nil)
		},
	},
	{
		name:  "delete a group's consumer in an own stream",
		roles: "rie",
		do:    request("$JS.API.CONSUMER.DELETE.QUEUE_default.runner-default-main", ""),
	},
	{
		name:  "give the executors' messages up",
		roles: "ri",
		do:    func(a *attacker) { a.send(a.ack, "", "+TERM", nil) },
	},
}

// Every attempt to exceed a role's permissions fails. go test -v logs the attempts.
func TestDenied(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"runner", "ingress", "executor"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			victim := newTarget(t)
			before := victim.state()
			for _, try := range attempts {
				if !strings.Contains(try.roles, role[:1]) {
					continue
				}
				a := attackBy(victim, role)
				try.do(a)
				<-time.After(max(try.by, hardlyAnyTime))
				if got := a.result(before); got != "" {
					t.Errorf("%s can %s:\n%s", role, try.name, got)
					victim = newTarget(t)
					before = victim.state()
				} else {
					t.Logf("%s cannot %s: %s", role, try.name, a.answers())
				}
				a.nc.Close()
			}
			// Check the state once more: slow attempts have had their effects by now.
			if late := difference(before, victim.state()); late != "" {
				t.Errorf("in the end:\n%s", late)
			}
		})
	}
}

// An ingress can read the states of EXECUTIONS, of queues' own streams (QUEUE_... for start
// messages, PROGRESS_... for reports) and of the registry, but of no other streams.
func TestStreamsThatAnIngressSees(t *testing.T) {
	t.Parallel()
	victim := newTarget(t)
	if _, err := victim.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name:     "CHANGES", // as an executor creates it
		Subjects: []string{"changes"},
	}); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for name := range victim.js.StreamNames(t.Context()).Name() {
		a := attackBy(victim, "ingress")
		a.request("$JS.API.STREAM.INFO."+name, `{"subjects_filter": ">"}`, 10*time.Second)
		if strings.Contains(a.answers(), "stream_info_response") {
			seen = append(seen, name)
		}
		a.nc.Close()
	}
	slices.Sort(seen)
	if want := []string{
		"EXECUTIONS", "KV_registry", "PROGRESS_default", "PROGRESS_gpu", "QUEUE_default",
		"QUEUE_gpu",
	}; !slices.Equal(seen, want) {
		t.Errorf("an ingress sees %q, not %q", seen, want)
	}
}

// Each attempt has a visible effect if it is made by a client that has all permissions in the
// account of the streams. Without this test, TestDenied would prove nothing.
func TestEveryAttemptWouldBeSeen(t *testing.T) {
	t.Parallel()
	for i := range 4 { // four parallel tests, because setting up a target is slow
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			var victim *target
			var before []string
			for _, try := range attempts[i*len(attempts)/4 : (i+1)*len(attempts)/4] {
				if victim == nil {
					victim = newTarget(t)
					before = victim.state()
				}
				a := attackBy(victim, "admin")
				do := try.do
				if try.control != nil {
					do = try.control
				}
				do(a)
				var got string
				if within(10*time.Second, func() bool {
					got = a.result(before)
					return got != "" && strings.Contains(got, try.brings)
				}) {
					t.Logf("%s: %.100s", try.name, got)
				} else {
					t.Errorf("%s brought nothing: %s", try.name, a.answers())
				}
				a.nc.Close()
				if difference(before, victim.state()) != "" {
					victim = nil
				}
			}
		})
	}
}
