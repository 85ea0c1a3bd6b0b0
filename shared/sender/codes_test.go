package sender_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// This package refuses requests only with codes for which webhook.Code.IsSignature returns true. An
// ingress has counters of refused signatures only for these codes.
func TestCodesAreAboutSignatures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`webhook\.Code([A-Z]\w*)`)
	found := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range code.FindAllStringSubmatch(string(source), -1) {
			found++
			if !strings.HasPrefix(name[1], "Signature") {
				t.Errorf("%s: no ingress counts refusals with Code%s", path, name[1])
			}
		}
	}
	if found == 0 {
		t.Error("no code is found")
	}
}
