package seal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/registry/seal"
)

func keys(t *testing.T, lines ...string) *seal.Keys {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := seal.ReadKeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestTheFirstKeySealsAndAllOpen(t *testing.T) {
	t.Parallel()
	old, next := seal.NewKeyLine(), seal.NewKeyLine()
	before, both, after := keys(t, old), keys(t, "# the new one", "", next, old), keys(t, next)
	secret := []byte("whsec_abc")
	boxed, err := before.Seal(secret, "sender:wf.node:1")
	if err != nil || bytes.Contains(boxed, secret) {
		t.Fatalf("%q, %v", boxed, err)
	}
	if opened, err := both.Open(boxed, "sender:wf.node:1"); err != nil ||
		!bytes.Equal(opened, secret) {
		t.Errorf("%q, %v", opened, err)
	}
	if both.IsSealedWithCurrentKey(boxed) || !before.IsSealedWithCurrentKey(boxed) {
		t.Error("which key sealed it")
	}
	if _, err := after.Open(boxed, "sender:wf.node:1"); !errors.Is(err, seal.ErrNoKey) ||
		!strings.Contains(err.Error(), strings.Split(old, ":")[0]) {
		t.Errorf("without the key: %v", err)
	}
	again, err := both.Seal(secret, "sender:wf.node:1")
	if err != nil || !both.IsSealedWithCurrentKey(again) || !after.IsSealedWithCurrentKey(again) {
		t.Errorf("the first key did not seal: %v", err)
	}
	if twice, _ := both.Seal(secret, "sender:wf.node:1"); bytes.Equal(twice, again) {
		t.Error("the same secret is sealed the same way twice")
	}
}

func TestABoxIsOfItsRecord(t *testing.T) {
	t.Parallel()
	line := seal.NewKeyLine()
	k := keys(t, line)
	boxed, err := k.Seal([]byte("secret"), "sender:wf.node:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Open(boxed, "sender:wf.node:2"); !errors.Is(err, seal.ErrInvalidBox) {
		t.Errorf("as another record: %v", err)
	}
	for i := range boxed {
		damaged := bytes.Clone(boxed)
		damaged[i] ^= 1
		if _, err := k.Open(damaged, "sender:wf.node:1"); err == nil {
			t.Errorf("byte %d was changed, and it opens", i)
		}
	}
	for n := range boxed {
		if _, err := k.Open(boxed[:n], "sender:wf.node:1"); err == nil {
			t.Errorf("the first %d bytes open", n)
		}
	}
}

func TestWithoutAKey(t *testing.T) {
	t.Parallel()
	none, err := seal.ReadKeyFile("")
	if err != nil || none.CanSeal() {
		t.Fatal(err)
	}
	if _, err := none.Seal([]byte("x"), "a"); !errors.Is(err, seal.ErrNoKey) {
		t.Error(err)
	}
	boxed, _ := keys(t, seal.NewKeyLine()).Seal([]byte("x"), "a")
	if _, err := none.Open(boxed, "a"); !errors.Is(err, seal.ErrNoKey) {
		t.Error(err)
	}
}

func TestBadKeyFiles(t *testing.T) {
	t.Parallel()
	line := seal.NewKeyLine()
	_, encoded, _ := strings.Cut(line, ":")
	for name, content := range map[string]string{
		"empty":    "\n# nothing\n",
		"no ID":    encoded,
		"bad ID":   "a b:" + encoded,
		"short":    "a:" + encoded[:20],
		"twice":    line + "\n" + line,
		"url-safe": "a:" + strings.Repeat("-_", 22),
		"33 bytes": "a:" + "AAAA" + encoded,
	} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := seal.ReadKeyFile(path); err == nil ||
			strings.Contains(err.Error(), encoded[:16]) ||
			!strings.Contains(err.Error(), "--secrets-key-file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := seal.ReadKeyFile("/nowhere/keys"); err == nil ||
		!strings.Contains(err.Error(), "--secrets-key-file") {
		t.Error(err)
	}
}
