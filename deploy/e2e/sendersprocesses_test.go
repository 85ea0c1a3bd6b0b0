package e2e

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry/seal"
)

// secretsKey creates a file with a key for sealed secrets, and returns the flag that names the
// file.
func secretsKey(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secrets-key")
	if err := os.WriteFile(file, []byte(seal.NewKeyLine()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--secrets-key-file=" + file
}

// When the API sets, rotates or removes a sender, the change applies from the very next request, at
// both ingress processes. Each turn of the test makes three changes; HOOKSTART_SENDER_TURNS sets
// the number of turns.
func TestSendersHoldOverTwoProcesses(t *testing.T) {
	t.Parallel()
	turns := sizeOf(t, "HOOKSTART_SENDER_TURNS", 40)
	i := install(t, 2, secretsKey(t))
	path := makeWorkflow(t, i.client, "bearer")
	ctx := t.Context()
	expect := func(turn int, what, secret string, status int) {
		t.Helper()
		header := map[string]string{}
		if secret != "" {
			header["Authorization"] = "Bearer " + secret
		}
		for _, url := range i.urls {
			if a, err := post(ctx, url+path, header, strings.NewReader("{}")); err != nil ||
				a.Status != status {
				t.Fatalf("turn %d, %s: %+v, %v, want %d", turn, what, a, err, status)
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	atOnce := int64(0)
	for turn := range turns {
		expect(turn, "without a sender", "", http.StatusOK)
		_, err := i.client.PutSender(ctx, "bearer", "node", api.PutSender{
			Preset:  "bearer",
			Secrets: []string{"the-first-secret"},
		})
		must(err)
		expect(turn, "not signed", "", http.StatusUnauthorized)
		expect(turn, "signed", "the-first-secret", http.StatusOK)
		_, err = i.client.AddSenderSecret(ctx, "bearer", "node", api.AddSenderSecret{
			Secret:                "the-next-secret",
			EndOthersAfterSeconds: &atOnce,
		})
		must(err)
		expect(turn, "the old secret", "the-first-secret", http.StatusUnauthorized)
		expect(turn, "the next secret", "the-next-secret", http.StatusOK)
		must(i.client.DeleteSender(ctx, "bearer", "node"))
	}
	expect(turns, "without a sender", "", http.StatusOK)
}

// An ingress does not start without the key for sealed secrets, or with another key, because it
// could not accept any request at nodes with senders. The error says what to do, and contains no
// secret.
func TestAnIngressWithoutTheSecretsKeyDoesNotStart(t *testing.T) {
	t.Parallel()
	key := secretsKey(t)
	i := install(t, 1, key)
	makeWorkflow(t, i.client, "signed")
	if _, err := i.client.PutSender(t.Context(), "signed", "node", api.PutSender{
		Preset:  "github",
		Secrets: []string{"it-is-a-secret"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {secretsKey(t)}} {
		flags = append(flags, "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
			"--nats-url="+i.nats.URL(), "--log-level=error")
		output, err := exec.CommandContext(t.Context(), "ingress", flags...).CombinedOutput()
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok || ended.ExitCode() != 1 {
			t.Errorf("%v: %v", flags, err)
		}
		if said := strings.TrimSpace(string(output)); !strings.Contains(said,
			"give every executor and ingress the same file") || strings.Contains(said, "\n") ||
			strings.Contains(said, "it-is-a-secret") {
			t.Errorf("%v: it says %q", flags, said)
		}
	}
	p := launch(t, "ingress", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+i.nats.URL(), key)
	p.Await(`(ingress is ready)`)
}
