package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/webhook"
)

const repository = "../.."

// documents returns the contents of the Markdown files in the repository, keyed by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() &&
			(entry.Name() == "node_modules" ||
				strings.HasPrefix(entry.Name(), ".") && path != repository):
			return filepath.SkipDir
		case !entry.IsDir() && strings.HasSuffix(path, ".md"):
			all[path] = string(file(t, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The README explains every problem code under an anchor of the same name. The type of a problem is
// a URL with this anchor.
func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	readme := string(file(t, repository+"/README.md"))
	var codes []string
	for _, found := range regexp.MustCompile(`(?m)^\tCode\w+ += "(\w+)"`).
		FindAllStringSubmatch(string(file(t, repository+"/executor/client/api/problem.go")), -1) {
		codes = append(codes, found[1])
	}
	if len(codes) == 0 {
		t.Fatal("no codes of the operators' API found")
	}
	for _, code := range webhook.Codes() {
		codes = append(codes, string(code))
	}
	for _, code := range codes {
		if n := strings.Count(readme, `<a id="`+code+`"></a>`); n == 0 {
			t.Errorf("README.md does not explain the code %s", code)
		}
	}
}

// Links between documents lead to existing files, headings and anchors.
func TestDocumentsLinkToWhatIsThere(t *testing.T) {
	t.Parallel()
	all := documents(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for path, text := range all {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, fragment, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which is not there", path, found[1])
			} else if fragment != "" && !hasHeading(all[to], fragment) {
				t.Errorf("%s links to %s: no such heading", path, found[1])
			}
		}
	}
}

func hasHeading(text, fragment string) bool {
	if strings.Contains(text, `<a id="`+fragment+`"></a>`) {
		return true
	}
	drop := regexp.MustCompile("[^a-z0-9 _-]")
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		if strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(heading[1]), ""), " ",
			"-") == fragment {
			return true
		}
	}
	return false
}

// Every test that the documents name as evidence for a guarantee exists.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	tests := map[string]bool{}
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() &&
			(entry.Name() == "node_modules" ||
				strings.HasPrefix(entry.Name(), ".") && path != repository):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			for _, found := range declared.FindAllStringSubmatch(string(file(t, path)), -1) {
				tests[found[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Z]\\w+)`")
	for path, text := range documents(t) {
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			if !tests[found[1]] {
				t.Errorf("%s names %s, which is not there", path, found[1])
			}
		}
	}
}

// The page deploy/docs/delivery-ids.md lists the headers that an ingress checks by default, in the
// same order.
func TestDefaultDeliveryHeadersAreDocumented(t *testing.T) {
	t.Parallel()
	want := "`" + strings.Join(webhook.DefaultDeliveryIDHeaders(), "`, `") + "`"
	if !strings.Contains(string(file(t, repository+"/deploy/docs/delivery-ids.md")), want) {
		t.Errorf("delivery-ids.md does not list %s", want)
	}
}

// The paths through the code in CONTRIBUTING.md name only files and functions that exist.
func TestPathsThroughTheCodeExist(t *testing.T) {
	t.Parallel()
	text := string(file(t, filepath.Join(repository, "CONTRIBUTING.md")))
	_, text, _ = strings.Cut(text, "\n## Three paths through the code\n")
	text, _, _ = strings.Cut(text, "\n## ")
	quoted := regexp.MustCompile("`([^`]+)`")
	base, source, isGo, checked := "", "", false, 0
	for line := range strings.Lines(text) {
		isPath := strings.HasPrefix(line, "**")
		for _, match := range quoted.FindAllStringSubmatch(line, -1) {
			switch name := match[1]; {
			case isPath:
				if strings.HasSuffix(name, "/") {
					base = name
				}
			case strings.Contains(name, ".") && !strings.Contains(name, " "):
				path := filepath.Join(repository, base, name)
				if _, err := os.Stat(path); err != nil {
					path = filepath.Join(repository, name)
				}
				source, isGo = string(file(t, path)), strings.HasSuffix(path, ".go")
			case regexp.MustCompile(`^\w+$`).MatchString(name) && source != "" &&
				name != "PATCH":
				checked++
				pattern := `\b` + name + `\b`
				if isGo {
					pattern = `(?m)^(func (\(.*\) )?|type |var |const |\t)` + name + `\b`
				}
				if !regexp.MustCompile(pattern).MatchString(source) {
					t.Errorf("%s is not declared in the file before it: %s", name, line)
				}
			}
		}
		source = "" // functions belong to a file that the same line names
	}
	if checked < 40 {
		t.Errorf("%d functions found", checked)
	}
}

// Every name in backquotes in CONTRIBUTING.md that can only be a name in the code, because it has a
// capital letter after its first letter, is in the code.
func TestNamesInContributingExist(t *testing.T) {
	t.Parallel()
	words := map[string]bool{}
	word := regexp.MustCompile(`\w+`)
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != repository ||
			entry.Name() == "node_modules"):
			return fs.SkipDir
		case slices.Contains([]string{".go", ".proto", ".js", ".mjs", ".html"}, filepath.Ext(path)):
			for _, found := range word.FindAllString(string(file(t, path)), -1) {
				words[found] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`(?:\\w+\\.)*(\\w+)(?:\\(.*?\\))?`")
	inside, checked := regexp.MustCompile(`^.+[A-Z].*[a-z]`), 0
	text := string(file(t, filepath.Join(repository, "CONTRIBUTING.md")))
	for line := range strings.Lines(text) {
		for _, match := range name.FindAllStringSubmatch(line, -1) {
			if inside.MatchString(match[1]) && strings.ToUpper(match[1]) != match[1] {
				if checked++; !words[match[1]] {
					t.Errorf("%s is not in the code: %s", match[1], line)
				}
			}
		}
	}
	if checked < 200 {
		t.Errorf("%d names found", checked)
	}
}
