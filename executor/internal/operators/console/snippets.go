package console

import (
	"embed"
	"strings"
)

// snippet is an example of a call to the webhook, to copy and paste.
type snippet struct {
	ID, Name string
	Parts    []string // the texts before and after each occurrence of the token
}

// tokenPlaceholder stands for the token in the code of an example.
const tokenPlaceholder = "\x00"

//go:embed snippets
var snippetFiles embed.FS

// snippetLanguages lists the languages of the examples. Each example is complete: it runs when
// pasted into a file or a shell.
var snippetLanguages = []struct{ id, name, file string }{
	{"curl", "curl", "curl.sh"}, {"javascript", "JavaScript", "javascript.js"}, {
		"python", "Python", "python.py",
	}, {"go", "Go", "main.go.txt"},
}

// snippets returns the examples for a webhook. baseURL ends with "token="; header is the name of
// the header in which the examples send the delivery ID.
func snippets(baseURL, header string) []snippet {
	replaced := strings.NewReplacer("{URL}", baseURL+tokenPlaceholder, "{HEADER}", header)
	made := make([]snippet, len(snippetLanguages))
	for i, s := range snippetLanguages {
		code, err := snippetFiles.ReadFile("snippets/" + s.file)
		if err != nil {
			panic(err) // cannot fail: the files are embedded
		}
		made[i] = snippet{
			s.id,
			s.name,
			strings.Split(
				replaced.Replace(strings.TrimSuffix(string(code), "\n")),
				tokenPlaceholder,
			),
		}
	}
	return made
}
