package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Every hookstart command that the README or the documentation shows exists and has the flags that
// are shown. Placeholders and ellipses are ignored.
func TestDocumentedCommandsAreCommands(t *testing.T) {
	const repository = "../../../../../"
	pages := []string{repository + "README.md"}
	for _, pattern := range []string{
		"deploy/*.md", "deploy/*/*.md", "deploy/docs/senders/*.md",
		"deploy/docs/recipes/*.md", "shared/runner/*/*.md",
	} {
		found, err := filepath.Glob(repository + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		pages = append(pages, found...)
	}
	// A documented command is inline code or has a line of its own. It ends at a comment, a pipe,
	// the next command or a redirection.
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
				continue // a sentence about hookstart, not a command
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

// Every hookstart command that a string in the source code mentions, such as an error message,
// exists.
func TestCommandsInMessagesAreCommands(t *testing.T) {
	const module = "../../../../"
	root := newParser(&commandLine{}, StdStreams{Out: io.Discard, Err: io.Discard}).Model.Node
	inText := regexp.MustCompile(`\bhookstart ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?`)
	checked := 0
	err := filepath.WalkDir(module, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			for _, words := range inText.FindAllStringSubmatch(text.Value, -1) {
				command := commandBelow(root, words[1])
				if command == nil {
					continue // "hookstart" is part of a sentence, not of a command
				}
				checked++
				if words[2] != "" && len(command.Children) > 0 &&
					commandBelow(command, words[2]) == nil {
					t.Errorf("%s: %s is no command", path, words[0])
				}
			}
			return true
		})
		return nil
	})
	if err != nil || checked < 50 {
		t.Errorf("%d commands found: %v", checked, err)
	}
}

// commandBelow returns the subcommand of node with the given name, or nil if there is none.
func commandBelow(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name || slices.Contains(child.Aliases, name) {
			return child
		}
	}
	return nil
}

func parseOnly(args []string) (err error) {
	defer func() {
		if left := recover(); left != nil {
			if _, ok := left.(exitCode); !ok {
				panic(left)
			}
		}
	}()
	_, err = newParser(&commandLine{}, StdStreams{Out: io.Discard, Err: io.Discard}).Parse(args)
	return err
}
