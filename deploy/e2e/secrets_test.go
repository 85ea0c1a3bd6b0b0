package e2e

import (
	"bytes"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/sender"
)

// No token and no sender's secret appears in plain text in the files of NATS, in the files of the
// database, or in the debug output.
func TestNoSecretIsStoredOrPrinted(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := launchLocal(t, data)
	client, ctx := l.client(), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.PutWorkflow(ctx, "orders", api.PutWorkflow{
		AccountID: "demo",
		Triggers:  []api.PutTrigger{{NodeID: "node"}},
	})
	must(err)
	_, err = client.Activate(ctx, "orders")
	must(err)
	const first, second, verifyToken = "the-first-app-secret", "the-second-app-secret",
		"a-verify-token-of-mine"
	put, err := client.PutSender(ctx, "orders", "node", api.PutSender{
		Preset:   "meta",
		Secrets:  []string{first},
		Settings: map[string]string{"verifyToken": verifyToken},
	})
	must(err)
	kept := int64(60)
	added, err := client.AddSenderSecret(ctx, "orders", "node", api.AddSenderSecret{
		Secret:                second,
		EndOthersAfterSeconds: &kept,
	})
	must(err)
	old, err := client.Trigger(ctx, "orders", "node")
	must(err)
	trigger, err := client.RotateToken(ctx, "orders", "node", time.Hour)
	must(err)

	for secret, want := range map[string]int{
		first:                    200,
		second:                   200,
		"somebody-else's-secret": 401,
	} {
		request := sender.Request{
			Method: "POST",
			Header: map[string][]string{"Content-Type": {"application/json"}},
			Body:   []byte(`{"entry":[]}`),
		}
		signed, err := sender.Sign(sender.Config{
			Preset:   "meta",
			Secrets:  []sender.Secret{{Text: secret}},
			Settings: map[string]string{"verifyToken": verifyToken},
		}, request, time.Now())
		must(err)
		sent, err := http.NewRequestWithContext(ctx, http.MethodPost, trigger.URL,
			bytes.NewReader(request.Body))
		must(err)
		sent.Header = signed.Header
		response, err := http.DefaultClient.Do(sent)
		must(err)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a request that is signed with %s: %d", secret, response.StatusCode)
		}
	}
	shown, err := client.Sender(ctx, "orders", "node")
	must(err)
	for _, of := range []api.Sender{put, added, shown, *trigger.Sender} {
		for _, secret := range of.Secrets {
			if secret.PublicKey != "" || secret.Captured != "" || len(secret.Last4) > 4 ||
				of.Settings["verifyToken"] != "" {
				t.Errorf("an answer shows %+v", of)
			}
		}
	}
	l.Terminate()

	secrets := []string{
		first, second, verifyToken, "somebody-else's-secret", old.Token, trigger.Token,
	}
	found := map[string]bool{}
	look := func(where string, text []byte) {
		t.Helper()
		for _, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s holds %q", where, secret)
			}
		}
		for _, there := range []string{"orders", "meta"} {
			found[there] = found[there] || bytes.Contains(text, []byte(there))
		}
	}
	must(filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		look(strings.TrimPrefix(path, data), text)
		return err
	}))
	if !found["orders"] || !found["meta"] {
		t.Error("nothing was found of what must be there")
	}
	look("the output", []byte(l.Output()))
}
