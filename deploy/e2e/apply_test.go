package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

// hookstartAt runs the command hookstart against an installation, with the given stdin and
// additional environment variables.
func hookstartAt(
	t *testing.T, l *localProgram, stdin string, env []string, args ...string,
) (stdout, stderr string, code int) {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(buildCommandLine(t), "hookstart"),
		args...)
	cmd.Env = append(append(os.Environ(), "HOOKSTART_API_URL="+l.executor,
		"HOOKSTART_ADMIN_TOKEN="+adminToken), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problems
	err := cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		code = failed.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return out.String(), problems.String(), code
}

// When the export of an installation is applied to an empty one, the two become equal. Values that
// no file contains, such as secrets, are taken from the environment. Afterwards there are no
// differences, and applying the export again changes nothing: it adds no entry to the audit log.
func TestExportIntoAnEmptyInstallation(t *testing.T) {
	t.Parallel()
	from := launchLocal(t, t.TempDir())
	empty := &localProgram{process: launch(t, "hookstart-local", "--data-dir", t.TempDir(),
		"--no-demo", "--ingress-addr=127.0.0.1:0",
		"--executor-addr=127.0.0.1:0", "--nats-addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--admin-token="+adminToken)}
	empty.executor = empty.Await(`\nConsole +(http://[^/\s]+)`)
	describe(t, from.client())
	exported, stderr, code := hookstartAt(t, from, "", nil, "export")
	if code != 0 || strings.Contains(exported, "hst_") || strings.Contains(exported, "secret-of") {
		t.Fatalf("export: %d %s\n%s", code, stderr, exported)
	}
	checkSchema(t, exported)
	apply := func(env []string, args ...string) (string, int) {
		t.Helper()
		stdout, stderr, code := hookstartAt(t, empty, exported, env,
			append([]string{"apply", "-f", "-"}, args...)...)
		return stdout + stderr, code
	}
	env := []string{
		"ORDERS_GITHUB_SECRET=secret-of-github-0", "ORDERS_META_SECRET=secret-of-meta-00",
		"ORDERS_META_VERIFYTOKEN=secret-of-verify",
	}
	if text, code := apply(env, "--dry-run"); code != 3 ||
		!strings.Contains(text, "+ workflow orders") {
		t.Errorf("a dry run before: %d\n%s", code, text)
	}
	if text, code := apply(env); code != 0 {
		t.Fatalf("apply: %d\n%s", code, text)
	}
	before := auditIDs(t, empty.client())
	if len(before) == 0 {
		t.Error("nothing is in the audit")
	}
	for _, args := range [][]string{{"--dry-run"}, {"--dry-run", "--prune"}, {}, {"--prune"}} {
		if text, code := apply(nil, args...); code != 0 ||
			strings.TrimSpace(text) != "No differences." {
			t.Errorf("apply %q again: %d\n%s", args, code, text)
		}
	}
	if after := auditIDs(t, empty.client()); !slices.Equal(after, before) {
		t.Errorf("%d entries in the audit, %d before", len(after), len(before))
	}
	again, _, _ := hookstartAt(t, empty, "", nil, "export")
	if again != exported {
		t.Errorf("the second installation exports\n%s\nand the first\n%s", again, exported)
	}
	// The sender of the second installation uses the secrets from the environment.
	trigger, err := empty.client().Trigger(t.Context(), "orders", "meta")
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(trigger.URL +
		"&hub.mode=subscribe&hub.challenge=42&hub.verify_token=secret-of-verify")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, _ := io.ReadAll(response.Body); string(body) != "42" {
		t.Errorf("the handshake: %s %s", response.Status, body)
	}
}

// describe creates an example of everything that an exported YAML document can describe.
func describe(t *testing.T, client *apiclient.Client) {
	t.Helper()
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(client.PutAccount(t.Context(), "acme", api.PutAccount{
		Name: "Acme: \"Inc.\" #1",
		Plan: "pro",
	}))
	check(client.PutWorkflow(t.Context(), "orders", api.PutWorkflow{
		AccountID: "acme",
		Name:      "Orders – néw",
		Queue:     "shop",
		RateLimit: &api.RateLimit{Requests: 7, WindowSeconds: 60},
		Triggers: []api.PutTrigger{
			{
				NodeID: "github",
				Name:   "yes",
				SamplePayload: json.RawMessage(
					`{"big": 12345678901234567890, "text": "a\nb: c", "e": 1e3}`,
				),
			},
			{NodeID: "meta", Name: "Meta"},
			{NodeID: "plain", SamplePayload: json.RawMessage(`"text"`)},
		},
	}))
	check(client.PutSender(t.Context(), "orders", "github", api.PutSender{
		Preset:  "github",
		Secrets: []string{"secret-of-github-0"},
	}))
	check(client.PutSender(t.Context(), "orders", "meta", api.PutSender{
		Preset:   "meta",
		Secrets:  []string{"secret-of-meta-00"},
		Settings: map[string]string{"verifyToken": "secret-of-verify"},
	}))
	check(client.PutSender(t.Context(), "orders", "plain", api.PutSender{
		Preset:   "plain",
		Settings: map[string]string{"deliveryId": "ptr:/id,header:X-Id"},
	}))
	check(client.Activate(t.Context(), "orders"))
}

// auditIDs returns the IDs of the audit entries about accounts, workflows and senders.
func auditIDs(t *testing.T, client *apiclient.Client) (ids []string) {
	t.Helper()
	for e := range auditEntries(t, client) {
		ids = append(ids, e.ID)
	}
	return ids
}

// checkSchema validates YAML documents against deploy/docs/hookstart.schema.json, the JSON schema
// that editors use. It also checks that the schema refuses wrong documents.
func checkSchema(t *testing.T, documents string) {
	t.Helper()
	compiled, err := jsonschema.NewCompiler().Compile("../docs/hookstart.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(documents))
	for number := 1; ; number++ {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = compiled.Validate(value)
		}
		if err != nil {
			t.Errorf("document %d: %v\n%s", number, err, text)
		}
	}
	for _, wrong := range []map[string]any{
		{"kind": "Account", "id": "a/b", "name": "n"},
		{"kind": "Account", "id": "a", "name": "n", "nam": "x"},
		{"kind": "Key"},
		{"kind": "Workflow", "id": "a", "accountId": "a", "name": "n", "triggers": []any{}},
		{"kind": "Sender", "workflowId": "a", "nodeId": "n", "preset": "p", "secrets": []any{"s"}},
	} {
		if compiled.Validate(wrong) == nil {
			t.Errorf("the schema takes %s", fmt.Sprint(wrong))
		}
	}
}

// The YAML documents in the example of deploy/docs/apply.md comply with the manifests' JSON schema.
func TestSchemaOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/apply.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n# yaml-language-server")
	documents, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the page shows no documents")
	}
	checkSchema(t, "#"+documents)
}
