package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The code snippets on a workflow's page work as pasted, in every language: each starts an
// execution, and the open page then shows it.
func TestSnippetsRun(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocalWithLink(t)
	b := openBrowser(t, l.executor)
	b.do(chromedp.Navigate(l.Await(`\nConsole +(\S+)`)))
	b.page("Overview")
	b.visit("/workflows/demo")
	id := regexp.MustCompile(`"?executionId"?'?: ?["']([-0-9a-f]{36})`)
	for _, language := range []struct {
		id, file string
		run      []string
	}{
		{"curl", "call.sh", []string{"sh"}},
		{"javascript", "call.js", []string{"node"}},
		{"python", "call.py", []string{"python3"}},
		{"go", "call.go", []string{"go", "run"}},
	} {
		program := language.run[0]
		if language.id == "curl" {
			program = "curl"
		}
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("%s is not run: %v", language.id, err)
			continue
		}
		b.evaluate(unfold)
		b.click("#tab-" + language.id)
		path := filepath.Join(t.TempDir(), language.file)
		if err := os.WriteFile(path, []byte(copied(b, "code-"+language.id)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(language.run[0], append(language.run[1:], path)...)
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		said, err := cmd.CombinedOutput()
		started := id.FindSubmatch(said)
		if err != nil || started == nil {
			t.Errorf("%s: %v\n%s", language.id, err, said)
			continue
		}
		row := `[data-id="` + string(started[1]) + `"]`
		if delivery := b.text(row, "delivery"); strings.Contains(delivery, "no delivery ID") {
			t.Errorf("%s sends no delivery ID: %s", language.id, delivery)
		}
		b.visit("/executions/" + string(started[1]))
		b.text("#input-tree", `"hello": "world"`)
		b.visit("/workflows/demo")
	}
	b.contented()
}
