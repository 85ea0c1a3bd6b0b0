package ingress_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/sender"
)

// The scripts in testdata/webhook describe the contract with senders. There is one script for each
// cause of a refusal, numbered in the order in which the causes are checked. Each script also shows
// which causes take precedence. All requests are sent over a real socket.
func TestWebhookContract(t *testing.T) {
	scripts, err := filepath.Glob("testdata/webhook/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			s := startSituations(t, func(c *ingress.Config) { c.BodyTimeout = 2 * time.Second })
			s.senders = map[string]sender.Config{}
			before := s.messages()
			testscript.Run(t, testscript.Params{
				Files: []string{script}, RequireExplicitExec: true, RequireUniqueNames: true,
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"send":      s.scriptSend,
					"raw":       s.scriptRaw,
					"sender":    s.scriptSender,
					"filter":    s.scriptFilter,
					"order":     s.scriptOrder,
					"answer":    s.scriptAnswer,
					"runner":    s.scriptRunner,
					"message":   s.scriptMessage,
					"subject":   s.scriptSubject,
					"nats-stop": func(*testscript.TestScript, bool, []string) { s.nats.Stop() },
					"stored": func(ts *testscript.TestScript, _ bool, args []string) {
						if n := s.messages() - before; len(args) != 1 ||
							args[0] != strconv.FormatUint(n, 10) {
							ts.Fatalf("%d messages were stored, want %s", n, args)
						}
					},
				},
				Setup: func(env *testscript.Env) error {
					for workflow, token := range s.token {
						name := strings.ToUpper(strings.ReplaceAll(workflow, "-", "_"))
						env.Setenv(name, "/webhooks/"+workflow+"?token="+token)
						env.Setenv(name+"_TOKEN", token)
					}
					env.Setenv("LONG", strings.Repeat("x", 256))
					env.Setenv("LONGEST", strings.Repeat("x", 255))
					return nil
				},
			})
			s.expectNoTokenInTheLog()
		})
	}
}

// headers holds the values of the flag -header NAME: VALUE, which can be repeated.
type headers map[string]string

func (h headers) String() string { return "" }

func (h headers) Set(text string) error {
	name, value, ok := strings.Cut(text, ": ")
	if !ok {
		return fmt.Errorf("%q is not NAME: VALUE", text)
	}
	h[name] = value
	return nil
}

// settings holds the values of the flag -setting NAME=VALUE, which can be repeated.
type settings map[string]string

func (s settings) String() string { return "" }

func (s settings) Set(text string) error {
	name, value, _ := strings.Cut(text, "=")
	s[name] = value
	return nil
}

// scriptSender implements "sender [-secret TEXT] [-setting NAME=VALUE]… WORKFLOW [PRESET]". It sets
// the sender of the workflow's node. Without PRESET, it removes the sender.
func (s *situations) scriptSender(ts *testscript.TestScript, neg bool, args []string) {
	spec := edit.SenderSpec{Settings: map[string]string{}}
	flags := flag.NewFlagSet("sender", flag.ContinueOnError)
	secret := flags.String("secret", "", "")
	flags.Var(settings(spec.Settings), "setting", "")
	ts.Check(flags.Parse(args))
	if neg || flags.NArg() < 1 {
		ts.Fatalf("usage: sender [FLAG…] WORKFLOW [PRESET]")
	}
	workflow := flags.Arg(0)
	if flags.NArg() == 1 {
		ts.Check(s.RemoveSender(s.t.Context(), workflow, "node"))
		delete(s.senders, workflow)
		return
	}
	spec.Preset = flags.Arg(1)
	config := sender.Config{Preset: spec.Preset, Settings: spec.Settings}
	if *secret != "" {
		spec.Secrets = []string{*secret}
		config.Secrets = []sender.Secret{{Text: *secret}}
	}
	_, _, err := s.PutSender(s.t.Context(), workflow, "node", spec)
	ts.Check(err)
	s.senders[workflow] = config
}

// scriptFilter implements "filter WORKFLOW [JSON]". It sets the filter for the node of a workflow
// in the pro account. Without JSON it removes the filter.
func (s *situations) scriptFilter(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: filter WORKFLOW [JSON]")
	}
	var settings edit.TriggerSettings
	if len(args) == 2 {
		settings.Filter = []byte(args[1])
	}
	s.putSettings(ts, neg, args[0], settings)
}

// scriptOrder implements "order [-two] WORKFLOW [PLACE]". It sets the order key for the node of a
// workflow in the pro account. PLACE is where a request contains the key, for example
// header:x-order. Without PLACE, the order key is removed. With -two, the workflow also gets a node
// named other with the same order key, and $OTHER is set to the path of that node's webhook.
func (s *situations) scriptOrder(ts *testscript.TestScript, neg bool, args []string) {
	flags := flag.NewFlagSet("order", flag.ContinueOnError)
	two := flags.Bool("two", false, "")
	ts.Check(flags.Parse(args))
	if flags.NArg() < 1 || flags.NArg() > 2 {
		ts.Fatalf("usage: order [-two] WORKFLOW [PLACE]")
	}
	workflow, settings := flags.Arg(0), edit.TriggerSettings{OrderKey: flags.Arg(1)}
	if !*two {
		s.putSettings(ts, neg, workflow, settings)
		return
	}
	s.putSettings(ts, neg, workflow, settings, "other")
	s.token["other"] = s.Token(s.t, workflow, "other")
	ts.Setenv("OTHER", "/webhooks/"+workflow+"?token="+s.token["other"])
}

// putSettings replaces the nodes of a workflow in the account "pro": the workflow gets the node
// "node" and the nodes in others, all with the same settings. If neg is true, the settings must be
// refused.
func (s *situations) putSettings(
	ts *testscript.TestScript, neg bool, workflow string, settings edit.TriggerSettings,
	others ...string,
) {
	var limit *registry.RateLimit
	if strings.Contains(workflow, "once") {
		limit = &registry.RateLimit{Requests: 1, Window: time.Hour}
	}
	triggers := []edit.TriggerSpec{{NodeID: "node", TriggerSettings: settings}}
	for _, other := range others {
		triggers = append(triggers, edit.TriggerSpec{NodeID: other, TriggerSettings: settings})
	}
	_, _, err := s.PutWorkflow(s.t.Context(), edit.WorkflowSpec{
		ID:        workflow,
		AccountID: "pro",
		RateLimit: limit,
		Triggers:  triggers,
	})
	switch invalid := (*edit.InvalidFieldError)(nil); {
	case neg && !errors.As(err, &invalid):
		ts.Fatalf("the settings were not refused: %v", err)
	case !neg:
		ts.Check(err)
	}
}

// scriptAnswer implements "answer WORKFLOW [SECONDS [raw]]". It sets how long responses to requests
// to the workflow, which must be in the pro account, wait for the execution to end. With raw, the
// response is the execution's output. Without SECONDS, responses do not wait.
func (s *situations) scriptAnswer(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 1 || len(args) > 3 {
		ts.Fatalf("usage: answer WORKFLOW [SECONDS [raw]]")
	}
	var settings edit.TriggerSettings
	if len(args) > 1 {
		seconds, err := strconv.ParseInt(args[1], 10, 64)
		ts.Check(err)
		settings.SyncResponse = &registry.SyncResponse{WaitSeconds: seconds, Raw: len(args) == 3}
	}
	s.putSettings(ts, neg, args[0], settings)
}

// scriptRunner implements the command "runner", which starts a runner: see startRunner.
func (s *situations) scriptRunner(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: runner")
	}
	s.startRunner()
}

// sign signs a request as the sender of its workflow would, at the current time plus shift.
func (s *situations) sign(ts *testscript.TestScript, r *request, shift time.Duration) {
	path, query, _ := strings.Cut(r.path, "?")
	in := sender.Request{
		Method: "POST",
		Header: map[string][]string{},
		Host:   s.addr,
		Query:  query,
		URL:    publicURL + r.path,
		Body:   []byte(r.body),
	}
	for name, value := range r.header {
		in.Header[http.CanonicalHeaderKey(name)] = []string{value}
	}
	signed, err := sender.Sign(s.senders[filepath.Base(path)], in, time.Now().Add(shift))
	ts.Check(err)
	for name, values := range signed.Header {
		r.header[name] = values[0]
	}
	r.path, r.body = path+"?"+signed.Query, string(signed.Body)
}

// scriptMessage implements "message". It prints the newest message of the stream.
func (s *situations) scriptMessage(ts *testscript.TestScript, _ bool, _ []string) {
	event := s.lastEvent()
	if start := event.Start; start != nil {
		fmt.Fprintf(ts.Stdout(),
			"start sender=%s verified=%t delivery=%s derived=%t\nheaders %v\n%s\n", start.Sender,
			start.Verified, start.DeliveryID, start.DeliveryIDDerived, start.Headers,
			start.Payload.WorkflowInput())
	}
	if r := event.Rejection; r != nil {
		fmt.Fprintf(ts.Stdout(),
			"rejected sender=%s verified=%t delivery=%s derived=%t\nheaders %v\n%s\n", r.Sender,
			r.Verified, r.DeliveryID, r.DeliveryIDDerived, r.Headers, r.Payload.Body)
	}
}

// scriptSubject implements "subject". It prints the subject and the order key of the newest start
// message.
func (s *situations) scriptSubject(ts *testscript.TestScript, neg bool, args []string) {
	event := s.lastEvent()
	if neg || len(args) > 0 || event.Start == nil {
		ts.Fatalf("usage: subject, after a start")
	}
	fmt.Fprintf(ts.Stdout(), "%s key=%s\n", s.last().Subject, event.Start.OrderKey)
}

// scriptSend implements "send [-method M] [-sign [-shift DURATION]] [-header NAME: VALUE]… [-body
// TEXT | -quoted GO-STRING | -bytes N] [-chunked] PATH". With -sign, the request is signed as the
// workflow's sender would sign it. scriptSend writes the response: the status and the code, the
// headers, an empty line, and the body.
func (s *situations) scriptSend(ts *testscript.TestScript, neg bool, args []string) {
	r := request{header: map[string]string{}}
	flags := flag.NewFlagSet("send", flag.ContinueOnError)
	flags.StringVar(&r.method, "method", "POST", "")
	flags.StringVar(&r.body, "body", "", "")
	flags.Var(headers(r.header), "header", "")
	flags.BoolVar(&r.chunked, "chunked", false, "")
	signed, shift := flags.Bool("sign", false, ""), flags.Duration("shift", 0, "")
	quoted, size := flags.String("quoted", "", ""), flags.Int("bytes", 0, "")
	ts.Check(flags.Parse(args))
	if neg || flags.NArg() != 1 {
		ts.Fatalf("usage: send [FLAG…] PATH")
	}
	r.path = flags.Arg(0)
	if *quoted != "" {
		text, err := strconv.Unquote(*quoted)
		ts.Check(err)
		r.body = text
	}
	if *size > 0 {
		r.body = strings.Repeat("x", *size)
	}
	if *signed {
		s.sign(ts, &r, *shift)
	}
	s.writeResponse(ts, s.send(r))
}

// scriptRaw implements "raw [-half] FILE". It sends the content of the file on a new connection,
// with variables replaced and with line endings as in HTTP. With -half, the client closes the
// sending side of the connection after that.
func (s *situations) scriptRaw(ts *testscript.TestScript, neg bool, args []string) {
	half := len(args) == 2 && args[0] == "-half"
	if neg || (len(args) != 1 && !half) {
		ts.Fatalf("usage: raw [-half] FILE")
	}
	text := os.Expand(ts.ReadFile(args[len(args)-1]), ts.Getenv)
	s.writeResponse(ts, s.raw(strings.ReplaceAll(text, "\n", "\r\n"), half))
}

func (s *situations) writeResponse(ts *testscript.TestScript, a received) {
	// If the response is an execution's output, its body need not have the format of a refusal,
	// even if its status is an error.
	isOutput := a.header.Get("Hookstart-Execution-Id") != "" && a.body["type"] == nil
	if a.status >= 400 && a.raw != "" && !isOutput {
		s.expect("every refusal has the same shape", a, a.status, a.code())
	}
	out := ts.Stdout()
	fmt.Fprintln(out, strings.TrimSpace(strconv.Itoa(a.status)+" "+a.code()))
	if a.close {
		a.header.Set("Connection", "close") // net/http removes this header
	}
	for _, name := range slices.Sorted(maps.Keys(a.header)) {
		if name != "Date" {
			fmt.Fprintf(out, "%s: %s\n", name, strings.Join(a.header[name], ", "))
		}
	}
	fmt.Fprintf(out, "\n%s\n", a.raw)
}

func (s *situations) expectNoTokenInTheLog() {
	s.t.Helper()
	for _, token := range append(slices.Collect(maps.Values(s.token)), "hst_x") {
		if strings.Contains(s.log.String(), token) {
			s.t.Error("a token is in the log")
		}
	}
}
