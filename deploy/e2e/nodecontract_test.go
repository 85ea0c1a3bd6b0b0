package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The Node.js kit uses every field of start messages, queue settings and reports, except for the
// fields that the test lists as left out. To check this, the test searches the source code of the
// kit for the names of the fields.
func TestNodeCopiesEveryField(t *testing.T) {
	t.Parallel()
	proto := string(file(t, filepath.Join(repository, "proto/hookstart/v1/execution.proto")))
	kit := string(file(t, filepath.Join(repository, "shared/runner/node/contract.js")))
	kit = regexp.MustCompile(`//.*`).ReplaceAllString(kit, "")
	for _, c := range []struct {
		message, function, leftOut string
	}{
		{"ExecutionStart", "decodeStart", "source acceptedAt tokenId deliveryDerived"},
		{"QueueSettings", "decodeSettings", "queue"},
		{"ExecutionProgress", "progress", ""},
	} {
		_, fields, _ := strings.Cut(proto, "\nmessage "+c.message+" {\n")
		fields, _, _ = strings.Cut(fields, "\n}\n")
		_, body, _ := strings.Cut(kit, "\nexport function "+c.function+"(")
		_, body, _ = strings.Cut(body, ") {\n")
		body, _, _ = strings.Cut(body, "\n}\n")
		names := regexp.MustCompile(`(?m)^  [\w.]+(?: [\w.]+)? (\w+) = \d+;`).
			FindAllStringSubmatch(fields, -1)
		if len(names) < 6 || body == "" {
			t.Fatalf("%s: %d fields and %q were found", c.message, len(names), body)
		}
		for _, found := range names {
			name := camelCase(found[1])
			copied := regexp.MustCompile(`\b` + name + `\b`).MatchString(body)
			leftOut := strings.Contains(" "+c.leftOut+" ", " "+name+" ")
			if copied == leftOut {
				t.Errorf("%s.%s is copied by %s: %t; left out by the test: %t", c.message, name,
					c.function, copied, leftOut)
			}
		}
	}
}

// camelCase returns the JavaScript name of a field in a .proto file, for example workflowId for
// workflow_id.
func camelCase(name string) string {
	parts := strings.Split(name, "_")
	for i, part := range parts[1:] {
		parts[i+1] = strings.ToUpper(part[:1]) + part[1:]
	}
	return strings.Join(parts, "")
}
