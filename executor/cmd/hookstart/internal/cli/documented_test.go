package cli

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every command in the README and the documentation exists, with its flags. Placeholders and
// ellipses are ignored.
func TestDocumentedCommandsAreCommands(t *testing.T) {
	const repository = "../../../../../"
	pages := []string{repository + "README.md"}
	for _, pattern := range []string{
		"deploy/*.md", "deploy/*/*.md", "deploy/docs/senders/*.md", "shared/runner/*/*.md",
	} {
		found, err := filepath.Glob(repository + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		pages = append(pages, found...)
	}
	// A command is inline code or on a separate line; it ends at a comment, a pipe, the next
	// command or an output.
	inCode := regexp.MustCompile("(?m)(?:`|^ *|[|] *)(?:bin/)?hookstart ([a-z][^`\n]*)")
	end := regexp.MustCompile(`\s+#.*|\s*[|;>&].*`)
	quoted := regexp.MustCompile(`"[^"]*"|'[^']*'`)
	unknown := regexp.MustCompile(`^(unknown flag|unexpected argument)`)
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range inCode.FindAllSubmatch(text, -1) {
			line := end.ReplaceAllString(quoted.ReplaceAllString(string(match[1]), "quoted"), "")
			args := strings.Fields(line)
			if strings.HasSuffix(string(match[0]), ":") || len(args) == 0 {
				continue // a sentence
			}
			checked++
			if err := parseOnly(args); err != nil && unknown.MatchString(err.Error()) {
				t.Errorf("%s: hookstart %s: %v", strings.TrimPrefix(page, repository), line, err)
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d commands found", checked)
	}
}

func parseOnly(args []string) (err error) {
	defer func() {
		if left := recover(); left != nil {
			if _, ok := left.(exited); !ok {
				panic(left)
			}
		}
	}()
	_, err = newParser(&flags{}, Streams{Out: io.Discard, Err: io.Discard}).Parse(args)
	return err
}
