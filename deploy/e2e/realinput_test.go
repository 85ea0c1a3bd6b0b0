package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// delivery is a request of a sender and its expected result.
type delivery struct {
	name    string
	header  map[string]string
	body    string
	chunked bool
	id      string // the expected delivery ID
	input   string // the expected input; "" means the body itself
}

func deliveries(t *testing.T) []delivery {
	t.Helper()
	payload := func(name string) string {
		text, err := os.ReadFile(filepath.Join("testdata", "payloads", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	gitHub := func(event, id string) map[string]string {
		return map[string]string{
			"Content-Type":                           "application/json",
			"User-Agent":                             "GitHub-Hookshot/0a1b2c3",
			"Accept":                                 "*/*",
			"X-GitHub-Event":                         event,
			"X-GitHub-Delivery":                      id,
			"X-GitHub-Hook-ID":                       "292430182",
			"X-GitHub-Hook-Installation-Target-Type": "repository",
			"X-GitHub-Hook-Installation-Target-ID":   "79929171",
			"X-Hub-Signature-256": "sha256=d57c68ca6f92289e6987922ff26938930f6e66a2d161ef06ab" +
				"df1859230aa23c",
		}
	}
	text := func(body string) string {
		quoted, err := json.Marshal(map[string]string{"body": body})
		if err != nil {
			t.Fatal(err)
		}
		return string(quoted)
	}
	largest := strings.Repeat("x", 102_400)
	return []delivery{
		{
			name:   "GitHub ping",
			header: gitHub("ping", "0b989ba4-242f-11e5-81e1-c7b6966d2516"),
			body:   payload("github-ping.json"),
			id:     "0b989ba4-242f-11e5-81e1-c7b6966d2516",
		},
		{
			name:   "GitHub push",
			header: gitHub("push", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
			body:   payload("github-push.json"),
			id:     "72d3162e-cc78-11e3-81ab-4c9367dc0958",
		},
		{
			name:   "GitHub pull request",
			header: gitHub("pull_request", "8a6f1c50-1f3e-11ef-8c9b-2f6f3c6f5a51"),
			body:   payload("github-pull-request.json"),
			id:     "8a6f1c50-1f3e-11ef-8c9b-2f6f3c6f5a51",
		},
		{
			name:   "GitHub issue comment",
			header: gitHub("issue_comment", "9c3d7a60-1f3e-11ef-9f0e-7d1a9be0f7c2"),
			body:   payload("github-issue-comment.json"),
			id:     "9c3d7a60-1f3e-11ef-9f0e-7d1a9be0f7c2",
		},
		{
			name: "Gitea push: it sends GitHub's headers, too",
			header: map[string]string{
				"Content-Type":      "application/json",
				"X-Gitea-Event":     "push",
				"X-Gitea-Delivery":  "f6266f16-1bf3-46a5-9ea4-602e06ead473",
				"X-GitHub-Event":    "push",
				"X-GitHub-Delivery": "f6266f16-1bf3-46a5-9ea4-602e06ead473",
				"X-Gogs-Delivery":   "f6266f16-1bf3-46a5-9ea4-602e06ead473",
			},
			body: payload("gitea-push.json"), id: "f6266f16-1bf3-46a5-9ea4-602e06ead473",
		},
		{
			name: "GitLab push: its event UUID is not in the list, so it is not deduplicated",
			header: map[string]string{
				"Content-Type":        "application/json",
				"X-Gitlab-Event":      "Push Hook",
				"X-Gitlab-Event-UUID": "13792a34-cac6-4fda-95a8-c58e00a3954e",
				"X-Gitlab-Token":      "s",
			},
			body: payload("gitlab-push.json"),
		},
		{
			name: "Standard Webhooks",
			header: map[string]string{
				"Content-Type":      "application/json",
				"Webhook-Id":        "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
				"Webhook-Timestamp": "1674087231",
				"Webhook-Signature": "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
			},
			body: `{"type":"user.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52"}}`,
			id:   "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
		},
		{
			name: "GitHub as a form",
			header: map[string]string{
				"Content-Type":      "application/x-www-form-urlencoded",
				"X-GitHub-Event":    "ping",
				"X-GitHub-Delivery": "form-1",
			},
			body: "payload=%7B%22zen%22%3A%22Keep+it+logically+awesome.%22%7D", id: "form-1",
			input: text("payload=%7B%22zen%22%3A%22Keep+it+logically+awesome.%22%7D"),
		},
		{
			name:   "multipart form",
			header: map[string]string{"Content-Type": "multipart/form-data; boundary=b"},
			body:   "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n",
			input:  text("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n"),
		},
		{
			name:   "XML",
			header: map[string]string{"Content-Type": "application/xml"},
			body:   `<?xml version="1.0"?><a b="&lt;">ä</a>`,
			input:  text(`<?xml version="1.0"?><a b="&lt;">ä</a>`),
		},
		{
			name:   "plain text",
			header: map[string]string{"Content-Type": "text/plain; charset=utf-8"},
			body:   "line\nline\n",
			input:  text("line\nline\n"),
		},
		{
			name:   "binary",
			header: map[string]string{"Content-Type": "application/octet-stream"},
			body:   "\x89PNG\r\n\x1a\n\xff",
			input:  `{"body":"iVBORw0KGgr/","bodyEncoding":"base64"}`,
		},
		{name: "empty", header: map[string]string{}, body: "", input: text("")},
		{
			name:   "JSON without its type",
			header: map[string]string{},
			body:   `{"a":1}`,
			input:  text(`{"a":1}`),
		},
		{
			name:    "JSON, chunked, with odd white space",
			header:  map[string]string{"Content-Type": "Application/Json ;charset"},
			body:    "\r\n{\"a\":\t1.0e0}\r\n",
			chunked: true,
		},
		{
			name:   "exactly the limit",
			header: map[string]string{"Content-Type": "text/plain"},
			body:   largest,
			input:  text(largest),
		},
		{
			name:    "exactly the limit, chunked",
			header:  map[string]string{"Content-Type": "text/plain"},
			body:    largest,
			chunked: true,
			input:   text(largest),
		},
		{
			name:   "deep JSON",
			header: map[string]string{"Content-Type": "application/json"},
			body:   strings.Repeat("[", 4_000) + strings.Repeat("]", 4_000),
		},
	}
}

// Requests that were captured from real senders are sent to the real program. The response, the
// message and the record agree, nothing is lost, and no token appears in any output.
func TestRealInput(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir())
	c := l.client()
	path := makeWorkflow(t, c, "real")
	_, token, _ := strings.Cut(path, "token=")
	js := jetStream(t, l.nats)
	executions, err := js.Stream(t.Context(), stream.ExecutionsName)
	if err != nil {
		t.Fatal(err)
	}

	for _, d := range deliveries(t) {
		t.Run(d.name, func(t *testing.T) {
			send := func() deliver.Answer {
				t.Helper()
				var body io.Reader = strings.NewReader(d.body)
				if d.chunked {
					body = io.MultiReader(body)
				}
				a, err := post(t.Context(), l.ingress+path+"&source=test", d.header, body)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			a := send()
			if a.Status != http.StatusOK || a.ExecutionID == "" || a.Deduplicated {
				t.Fatalf("answer %+v", a)
			}
			if d.id != "" {
				if again := send(); !again.Deduplicated || again.ExecutionID != a.ExecutionID {
					t.Errorf("sent again: %+v", again)
				}
			}
			wantDuplicates := int64(0)
			if d.id != "" {
				wantDuplicates = 1
			}
			record := recorded(t, c, a.ExecutionID, func(e api.ExecutionDetail) bool {
				return e.Duplicates == wantDuplicates
			})
			if record.Status != "queued" || record.Source != "webhook" ||
				record.WorkflowID != "real" || record.NodeID != "node" ||
				record.AccountID != "tests" || record.DeliveryID != d.id ||
				record.BodyBytes != int64(len(d.body)) ||
				record.ContentType != d.header["Content-Type"] ||
				!slices.Equal(record.Query["source"], []string{"test"}) || len(record.Query) != 1 {
				t.Errorf("record %+v", record.Execution)
			}
			checkInput(t, l, a.ExecutionID, d)
			for name, value := range d.header {
				want := []string{value}
				if name == "X-Gitlab-Token" { // a plaintext secret, which is not stored
					want = nil
				}
				if !slices.Equal(record.Headers[http.CanonicalHeaderKey(name)], want) {
					t.Errorf("header %s: %q", name, record.Headers[http.CanonicalHeaderKey(name)])
				}
			}
			msg, err := executions.GetMsg(t.Context(), record.StreamSequence)
			if err != nil {
				t.Fatal(err)
			}
			event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
			if err != nil || event.Start == nil {
				t.Fatalf("message %s: %v", msg.Subject, err)
			}
			start := event.Start
			if start.ID != a.ExecutionID || string(start.Payload.Body) != d.body ||
				start.Source != execution.SourceWebhook || start.DeliveryID != d.id {
				t.Errorf("start %s %s %s", start.ID, start.Source, start.DeliveryID)
			}
		})
	}

	over, err := post(t.Context(), l.ingress+path, nil,
		strings.NewReader(strings.Repeat("x", 102_401)))
	if err != nil || over.Code != "body_too_large" {
		t.Errorf("one byte more: %+v, %v", over, err)
	}
	over, err = post(t.Context(), l.ingress+path, nil,
		io.MultiReader(strings.NewReader(strings.Repeat("x", 102_401))))
	if err != nil || over.Code != "body_too_large" {
		t.Errorf("one byte more, chunked: %+v, %v", over, err)
	}
	for _, bad := range []string{
		l.ingress + "/webhooks/real?token=hst_wrong",
		l.ingress + "/webhooks/hst_wrong?token=hst_wrong", l.ingress + "/hst_wrong",
		l.ingress + "/webhooks/real/?token=hst_wrong",
		l.executor + "/api/v1/hst_wrong?token=hst_wrong",
	} {
		if _, err := post(t.Context(), bad, map[string]string{
			"Authorization":     "Bearer hst_wrong",
			"User-Agent":        "hst_wrong",
			"X-GitHub-Delivery": "hst_wrong",
		}, strings.NewReader("hst_wrong")); err != nil {
			t.Error(err)
		}
	}
	trigger, err := c.RotateToken(t.Context(), "real", "node", 0)
	if err != nil {
		t.Fatal(err)
	}

	l.Terminate()
	log := strings.ReplaceAll(l.Output(), l.webhook, "") // the demo's URL is printed at startup
	for _, secret := range []string{token, trigger.Token, "hst_", adminToken} {
		if at := strings.Index(log, secret); at >= 0 {
			t.Errorf("a token is in the output: …%s…", log[max(0, at-200):min(len(log), at+100)])
		}
	}
	if !strings.Contains(log, `"execution_id"`) {
		t.Error("the log was not searched")
	}
}

// checkInput checks that the API returns the input of the execution with the given ID exactly as d
// expects it. It compares the bytes, because decoding the JSON could hide differences.
func checkInput(t *testing.T, l *localProgram, id string, d delivery) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		l.executor+"/api/v1/executions/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := d.input
	if want == "" {
		want = d.body
	}
	if !execution.ValidJSON(text) || !strings.Contains(string(text), strings.TrimSpace(want)) {
		t.Errorf("input: want %.200s in %.2000s", want, text)
	}
}
