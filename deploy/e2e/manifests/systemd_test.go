package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The units in deploy/systemd are well-formed and sandboxed, and pass flags that the programs have.
func TestSystemd(t *testing.T) {
	units, err := filepath.Glob(filepath.Join(deploy, "systemd", "*.service"))
	if err != nil || len(units) != 5 {
		t.Fatalf("%v, %v", units, err)
	}
	folder := t.TempDir()
	var copies []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		command := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/(\S+) (.*)$`).
			FindStringSubmatch(string(text))
		if command == nil {
			t.Fatalf("%s starts nothing", unit)
		}
		// systemd expands a variable in the middle of a word only if the variable has braces.
		if m := regexp.MustCompile(`(?m)^Exec.*[^\s$]\$\w.*$`).Find(text); m != nil {
			t.Errorf("%s: systemd does not replace the variable in %s", unit, m)
		}
		// systemd must not limit the time for stopping hookstart run, which itself limits how long
		// its programs may take. A shorter limit of systemd would kill these programs.
		if command[1] == "hookstart" &&
			!strings.Contains(string(text), "\nTimeoutStopSec=infinity\n") {
			t.Errorf("%s kills programs that may still run", unit)
		}
		// ProcSubset=pid hides /proc/sys/net/core/somaxconn. Go then limits the queue of a listener
		// to 128 connections.
		if command[1] != "hookstart" && strings.Contains(string(text), "\nProcSubset=pid\n") {
			t.Errorf("%s listens with a short queue", unit)
		}
		env := map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^Environment=(\w+)=(.*)$`).
			FindAllStringSubmatch(string(text), -1) {
			env[m[1]] = m[2]
		}
		switch command[1] {
		case "nats-server":
		case "hookstart":
			checkRunner(t, strings.Fields(command[2]))
		default:
			// checkProgram requires an address that is reachable from outside of a container. The
			// units use the default address, which is reachable only from the same machine.
			if !checkProgram(t, command[1],
				append(strings.Fields(command[2]), "--ops-addr=0.0.0.0:0"), env) {
				t.Errorf("no such program: %s", command[1])
			}
		}
		// systemd-analyze requires that the programs of a unit are installed, which they are not
		// here. So the copies of the units that it checks run /bin/true instead.
		verifiable := strings.NewReplacer("ExecStart=/usr/bin/"+command[1], "ExecStart=/bin/true",
			"ExecReload=/usr/bin/"+command[1], "ExecReload=/bin/true").Replace(string(text))
		copies = append(copies, filepath.Join(folder, filepath.Base(unit)))
		if err := os.WriteFile(copies[len(copies)-1], []byte(verifiable), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze")
	}
	if out, err := exec.Command(analyze,
		append([]string{"verify"}, copies...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	// A threshold of 15 means an exposure level of 1.5. systemd rates the units at 1.2, mainly
	// because they use the network.
	if out, err := exec.Command(analyze,
		append([]string{"security", "--offline=true", "--threshold=15"},
			copies...)...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Each program accepts every setting in its example environment file, and every setting that the
// documents append to its environment file. The program's unit reads that file. The settings
// include the admin token if, and only if, the program needs one.
func TestSettingsOfUnits(t *testing.T) {
	documents := read(t, "README.md") + read(t, "docs", "one-machine.md")
	for file, program := range map[string]string{
		"ingress.env":  "ingress",
		"executor.env": "executor",
		"local.env":    "hookstart-local",
	} {
		unit := "hookstart-" + strings.TrimSuffix(file, ".env") + ".service"
		if !regexp.MustCompile(`(?m)^EnvironmentFile=-?/etc/hookstart/` + file + `$`).
			MatchString(read(t, "systemd", unit)) {
			t.Errorf("%s does not read %s", unit, file)
		}
		example := read(t, "systemd", file+".example")
		if !strings.Contains(example, "# Settings of "+unit+",") {
			t.Errorf("%s is not for %s", file, unit)
		}
		settings := regexp.MustCompile(`(?m)^#?(HOOKSTART_\w+)=(.*)$`)
		lines := settings.FindAllStringSubmatch(example, -1)
		for _, m := range regexp.MustCompile(
			`(?s)cat >> /etc/hookstart/`+file+` <<END\n(.*?)\nEND\n|echo ([^\n]*) >> /etc/hookstart/`+
				file+`\n`).FindAllStringSubmatch(documents, -1) {
			documented := settings.FindAllStringSubmatch(m[1]+m[2], -1)
			if len(documented) == 0 {
				t.Errorf("the documents put no setting into %s: %s", file, m[0])
			}
			lines = append(lines, documented...)
		}
		env := map[string]string{"HOOKSTART_OPS_ADDR": "0.0.0.0:0"}
		for _, m := range lines {
			env[m[1]] = m[2]
		}
		checkProgram(t, program, nil, env)
		if _, ok := env["HOOKSTART_ADMIN_TOKEN"]; ok != (program != "ingress") {
			t.Errorf("%s names an admin token: %t", file, ok)
		}
	}
}

// checkRunner checks the arguments with which a unit starts the hookstart command line, which
// checkProgram cannot check. It runs hookstart with them. If the arguments are valid, hookstart
// complains only that the program it is to run does not exist here.
func checkRunner(t *testing.T, args []string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "hookstart")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program,
		"github.com/hookstart/hookstart/executor/cmd/hookstart").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, _ := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if !strings.HasPrefix(string(out),
		"hookstart: there is no program /usr/local/lib/hookstart/%i\n") {
		t.Errorf("hookstart %q: %s", args, out)
	}
}
