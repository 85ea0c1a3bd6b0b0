package console

import (
	"embed"
	"strings"
)

// snippet is a piece of code to paste.
type snippet struct {
	ID, Name string
	Parts    []string // the texts around the token
}

// tokenMark stands for the token in the code.
const tokenMark = "\x00"

//go:embed snippets
var snippetFiles embed.FS

// languages lists the languages of the examples. Each example is complete: it runs when it is
// pasted into a file or a shell.
var languages = []struct{ id, name, file string }{
	{"curl", "curl", "curl.sh"}, {"javascript", "JavaScript", "javascript.js"}, {
		"python", "Python", "python.py",
	}, {"go", "Go", "main.go.txt"},
}

// snippets returns the examples for one webhook. baseURL ends with "token="; header is the first
// header for a delivery ID.
func snippets(baseURL, header string) []snippet {
	replaced := strings.NewReplacer("{URL}", baseURL+tokenMark, "{HEADER}", header)
	made := make([]snippet, len(languages))
	for i, s := range languages {
		code, err := snippetFiles.ReadFile("snippets/" + s.file)
		if err != nil {
			panic(err) // the files are embedded in the program
		}
		made[i] = snippet{
			s.id, s.name,
			strings.Split(replaced.Replace(strings.TrimSuffix(string(code), "\n")), tokenMark),
		}
	}
	return made
}
