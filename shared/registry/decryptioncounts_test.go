package registry_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/seal"
)

func keysOf(t *testing.T, lines ...string) *seal.Keys {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := seal.ReadKeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	one, two := seal.NewKeyLine(), seal.NewKeyLine()
	first, second := keysOf(t, one), keysOf(t, two)
	box := func(keys *seal.Keys, about string) []byte {
		sealed, err := keys.Seal([]byte("secret"), about)
		if err != nil {
			t.Fatal(err)
		}
		return sealed
	}
	w := &registry.Workflow{
		ID: "wf",
		Triggers: []registry.Trigger{{NodeID: "n", Sender: &registry.Sender{
			Secrets: []registry.SenderSecret{
				{
					ID:         "s",
					SealedText: box(first, registry.SenderSecretSealPurpose("wf", "n", "s")),
				},
				{ID: "p", PublicKey: "in clear"},
			},
			SealedSettings: map[string][]byte{
				"v": box(second, registry.SenderSettingSealPurpose("wf", "n", "v")),
			},
		}}, {NodeID: "plain"}},
	}
	id := func(line string) string { name, _, _ := strings.Cut(line, ":"); return name }
	for what, c := range map[string]struct {
		keys           *seal.Keys
		opened, closed int
		refused        bool
		names          string
	}{
		"both":        {keysOf(t, one, two), 2, 0, false, ""},
		"one of them": {first, 1, 1, false, id(two)},
		"another one": {keysOf(t, seal.NewKeyLine()), 0, 2, true, id(one)},
		"another key of that ID": {
			keysOf(t, id(one)+":"+strings.SplitN(seal.NewKeyLine(), ":", 2)[1]),
			0, 2, true, id(two),
		},
		"none": {nil, 0, 2, true, id(one)},
	} {
		var s registry.DecryptionCounts
		s.CountWorkflowSecrets(c.keys, w)
		err := s.CheckAnyDecrypted(c.keys)
		if s.Decryptable != c.opened || s.Undecryptable != c.closed || (err != nil) != c.refused ||
			!strings.Contains(s.Warning(), c.names) || (s.Warning() == "") != (c.names == "") {
			t.Errorf("%s: %+v, %v, %q", what, s, err, s.Warning())
		}
		if err != nil &&
			(strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), c.names)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
