package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
)

// The shell commands in deploy/docs/recipes/github-deploy.md work as pasted. They set a sender, a
// filter, an order key and the workflow for operator events. Afterwards only an opened pull request
// starts an execution.
func TestRecipeGitHubDeploy(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"sh", "od", "tr"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is missing")
		}
	}
	recipe, err := os.ReadFile("../docs/recipes/github-deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -e\n")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(recipe, -1)
	for _, block := range blocks {
		script.Write(block[1])
	}
	if len(blocks) != 2 {
		t.Fatalf("the recipe has %d blocks of commands", len(blocks))
	}
	dir := t.TempDir()
	if err := os.Symlink(buildCommandLine(t), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	l := launchLocal(t, t.TempDir())
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOOKSTART_API_URL="+l.executor,
		"HOOKSTART_ADMIN_TOKEN="+adminToken, "GORACE="+raceOptions)
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	started := regexp.MustCompile(`(?m)^Execution +([0-9a-f-]{36})$`).FindAllSubmatch(said, -1)
	if len(started) != 1 || !strings.Contains(string(said), "does not meet the filter") {
		t.Fatalf("not one execution and one filtered request:\n%s", said)
	}
	e := recorded(t, l.client(), string(started[0][1]), func(api.ExecutionDetail) bool {
		return true
	})
	if e.Sender != "github" || !e.Verified || e.Queue != "github-deploy" {
		t.Errorf("the execution is %+v", e.Execution)
	}
	trigger, err := l.client().Trigger(t.Context(), "github-deploy", e.NodeID)
	if err != nil || trigger.OrderKey != "ptr:/repository/full_name" {
		t.Errorf("the order key is %q, %v", trigger.OrderKey, err)
	}
	if events, err := l.client().Events(t.Context(), "demo"); err != nil ||
		events.WorkflowID != "alerts" {
		t.Errorf("the events are %+v, %v", events, err)
	}
}
