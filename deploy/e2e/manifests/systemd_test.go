package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The units are well-formed, confined, and give flags that the programs have.
func TestSystemd(t *testing.T) {
	units, err := filepath.Glob(filepath.Join(deploy, "systemd", "*.service"))
	if err != nil || len(units) != 3 {
		t.Fatalf("%v, %v", units, err)
	}
	folder := t.TempDir()
	var copies []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		command := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/(\S+) (.*)$`).FindStringSubmatch(string(text))
		if command == nil {
			t.Fatalf("%s starts nothing", unit)
		}
		env := map[string]string{"HOOKSTART_OPS_ADDR": "0.0.0.0:0"} // on a machine of its own the default is right
		for _, m := range regexp.MustCompile(`(?m)^Environment=(\w+)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
			env[m[1]] = m[2]
		}
		if known := checkProgram(t, command[1], strings.Fields(command[2]), env); !known && command[1] != "nats-server" {
			t.Errorf("no such program: %s", command[1])
		}
		// The programs are not installed here.
		verifiable := strings.Replace(string(text), "ExecStart=/usr/bin/"+command[1], "ExecStart=/bin/true", 1)
		copies = append(copies, filepath.Join(folder, filepath.Base(unit)))
		if err := os.WriteFile(copies[len(copies)-1], []byte(verifiable), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze")
	}
	if out, err := exec.Command(analyze, append([]string{"verify"}, copies...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	// 1.2 is what they are exposed to by its measure: the network, above all.
	if out, err := exec.Command(analyze, append([]string{"security", "--offline=true", "--threshold=15"}, copies...)...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
