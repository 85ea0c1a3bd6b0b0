package natsconfig

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The scripts make-secrets.sh and add-runners.sh work in folders with spaces in their names. If a
// step fails, a script reports the error, leaves existing files unchanged and leaves no unfinished
// ones behind, so that the same command works later.
func TestKeyScripts(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "my files")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	nk, broken := filepath.Join(folder, "nk"), filepath.Join(folder, "broken")
	made, runners := filepath.Join(folder, "secrets"), filepath.Join(folder, "runners.conf")
	if err := os.Symlink(self, nk); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		broken:  "#!/bin/sh\n[ \"$1\" = -gen ] && exec '" + nk + "' \"$@\"\nexit 1\n",
		runners: "# none yet\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	t.Setenv("RUNNERS", runners)
	run := func(nk, script string, args ...string) (output string, err error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(files, script), args...)
		cmd.Env = append(os.Environ(), "NK="+nk)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	if out, err := run(broken, "make-secrets.sh", made, "nats-0"); err == nil {
		t.Errorf("keys were made without nk: %s", out)
	}
	if out, err := run(nk, "make-secrets.sh", made, "nats-0"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	before := filesBut(t, made)
	if out, err := run(broken, "add-runners.sh", made, "builds", "main"); err == nil {
		t.Errorf("a group was added without nk: %s", out)
	}
	if text, err := os.ReadFile(runners); err != nil || string(text) != "# none yet\n" ||
		!maps.Equal(filesBut(t, made), before) {
		t.Errorf("a group that could not be added left something: %s (%v)", text, err)
	}
	if out, err := run(nk, "add-runners.sh", made, "builds", "main"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if text, err := os.ReadFile(runners); err != nil ||
		strings.Count(string(text), "RUNNER-builds-main {") != 1 {
		t.Errorf("%s (%v)", text, err)
	}

	authority := filepath.Join(made, "ca.key")
	for _, damage := range []func() error{
		func() error { return os.WriteFile(authority, []byte("no key\n"), 0o600) },
		func() error { return os.Remove(authority) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		before = filesBut(t, made)
		out, err := run(nk, "make-secrets.sh", "--renew", made, "nats-0")
		if err == nil || out == "" {
			t.Errorf("a certificate without an authority: %v, it says %q", err, out)
		}
		if !maps.Equal(filesBut(t, made), before) {
			t.Error("a certificate that could not be renewed left something")
		}
	}
}

// If CDPATH is set, cd may change to a folder of the same name elsewhere. make-secrets.sh
// nevertheless works only in the folder that it has created. Otherwise a failed run would remove
// another folder's files.
func TestMakeSecretsKeepsToItsFolder(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl")
	}
	script, err := filepath.Abs(filepath.Join(files, "make-secrets.sh"))
	if err != nil {
		t.Fatal(err)
	}
	here, elsewhere := t.TempDir(), t.TempDir()
	other := filepath.Join(elsewhere, "made")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "secrets.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := filesBut(t, other)
	cmd := exec.CommandContext(t.Context(), script, "made", "nats-0")
	cmd.Dir, cmd.Env = here, append(os.Environ(), "NK=false", "CDPATH="+elsewhere)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("keys were made without nk: %s", out)
	}
	if now, err := os.ReadDir(other); err != nil || len(now) != len(before) {
		t.Errorf("another folder has %v (%v)", now, err)
	}
	if left, err := os.ReadDir(here); err != nil || len(left) > 0 {
		t.Errorf("a failed run left %v (%v)", left, err)
	}
}

// If a run of prepare.sh fails after it has created the keys, the next run completes it. If a run
// was killed while it created the keys, the next run fails, because some keys are missing.
func TestPrepareCompletesAFailedRun(t *testing.T) {
	folder := t.TempDir()
	compose := filepath.Join(folder, "compose")
	for _, name := range []string{"compose", "nats"} {
		if err := os.Mkdir(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	prepare, err := os.ReadFile(filepath.Join(files, "..", "compose", "prepare.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(compose, "prepare.sh"): string(prepare),
		filepath.Join(folder, "nats", "make-secrets.sh"): "#!/bin/sh\n" +
			`mkdir "$1" && echo made > "$1/tls.crt"`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script := filepath.Join(compose, "prepare.sh")
	run := func() ([]byte, error) {
		return exec.CommandContext(t.Context(), script).CombinedOutput()
	}
	secrets := filepath.Join(compose, "secrets")
	if err := os.Mkdir(secrets, 0o700); err != nil { // as after a killed make-secrets.sh
		t.Fatal(err)
	}
	if out, err := run(); err == nil {
		t.Errorf("unfinished secrets are used: %s", out)
	}
	if err := os.RemoveAll(secrets); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(compose, ".env")) // exists only if the check above has failed
	obstacle := filepath.Join(compose, ".env.new")
	if err := os.Mkdir(obstacle, 0o700); err != nil { // prepare.sh cannot write this file
		t.Fatal(err)
	}
	if out, err := run(); err == nil {
		t.Fatalf("a file was written over a folder: %s", out)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(compose, ".env")); err != nil ||
		!strings.Contains(string(text), "HOOKSTART_ADMIN_TOKEN=") {
		t.Errorf("%s (%v)", text, err)
	}
}
