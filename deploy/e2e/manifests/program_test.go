// Package manifests checks the files in deploy that a test cannot run. It checks them with the
// types and tools of the programs that read them, and against the flags of our own programs.
package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/program"
)

// deploy is the path of the folder deploy, whose files these tests check.
const deploy = "../.."

func read(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{deploy}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// checkProgram checks that a program accepts the flags and the environment variables meant for it,
// and serves metrics on an address that is reachable from outside its container. It reports whether
// the program exists.
func checkProgram(t *testing.T, name string, args []string, env map[string]string) bool {
	t.Helper()
	args = slices.Clone(args)
	for variable, value := range env {
		flag, ours := strings.CutPrefix(variable, "HOOKSTART_")
		if ours {
			args = append(args, "--"+strings.ToLower(strings.ReplaceAll(flag, "_", "-"))+"="+value)
		}
	}
	var config any
	var opsAddr *string
	switch name {
	case "ingress":
		c := &ingress.Config{}
		config, opsAddr = c, &c.OpsAddr
	case "executor":
		c := &executor.Config{}
		config, opsAddr = c, &c.OpsAddr
	case "hookstart-local":
		c := &local.Config{}
		config, opsAddr = c, &c.OpsAddr
	default:
		return false
	}
	if err := program.Parse(config, args...); err != nil {
		t.Errorf("%s %q: %v", name, args, err)
	}
	if host, _, _ := strings.Cut(*opsAddr, ":"); host != "" && host != "0.0.0.0" {
		t.Errorf("%s: nobody reaches metrics and probes at %s from outside the container", name,
			*opsAddr)
	}
	return true
}

// checkProgram reports an unknown flag, and an ops address that is not reachable from outside its
// container.
func TestCheckProgramFindsMistakes(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag=1"}, {"--ops-addr=127.0.0.1:9090"}} {
		inner := &testing.T{}
		checkProgram(inner, "ingress", args, nil)
		if !inner.Failed() {
			t.Errorf("%q passes", args)
		}
	}
}
