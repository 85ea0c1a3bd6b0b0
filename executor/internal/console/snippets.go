package console

import "strings"

// snippet is code to paste. The token's place in it is between Before and After, as
// often as there are parts.
type snippet struct {
	ID, Name string
	// Parts are the texts around the token.
	Parts []string
}

// tokenMark stands for the token in the code below; no code has it otherwise.
const tokenMark = "\x00"

// languages are how the languages of integrators call a webhook, each whole: pasted into a file, or a shell, it runs.
var languages = []struct{ id, name, code string }{
	{"curl", "curl", `curl -X POST '{URL}' \
  -H 'Content-Type: application/json' \
  -H "{HEADER}: try-$(date +%s)" \
  -d '{"hello": "world"}'`},
	{"javascript", "JavaScript", `fetch("{URL}", {
  method: "POST",
  headers: {
    "Content-Type": "application/json",
    "{HEADER}": "try-" + Date.now(),
  },
  body: JSON.stringify({ hello: "world" }),
}).then(async (response) => console.log(response.status, await response.json()));`},
	{"python", "Python", `import json, urllib.request, uuid

request = urllib.request.Request(
    "{URL}",
    data=json.dumps({"hello": "world"}).encode(),
    headers={
        "Content-Type": "application/json",
        "{HEADER}": str(uuid.uuid4()),
    },
)
with urllib.request.urlopen(request) as response:
    print(response.status, json.load(response))`},
	{"go", "Go", `package main

import (
	"crypto/rand"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	body := strings.NewReader(` + "`" + `{"hello": "world"}` + "`" + `)
	request, err := http.NewRequest(http.MethodPost, "{URL}", body)
	if err != nil {
		log.Fatal(errors.Unwrap(err)) // err itself shows the token
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("{HEADER}", rand.Text()) // the same one when it is sent again
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(errors.Unwrap(err))
	}
	defer response.Body.Close()
	log.Print(response.Status)
	_, _ = io.Copy(os.Stdout, response.Body)
}`},
}

// snippets are the languages for one webhook. baseURL ends with "token="; header is the first in which a delivery ID
// may be.
func snippets(baseURL, header string) []snippet {
	replaced := strings.NewReplacer("{URL}", baseURL+tokenMark, "{HEADER}", header)
	made := make([]snippet, len(languages))
	for i, s := range languages {
		made[i] = snippet{s.id, s.name, strings.Split(replaced.Replace(s.code), tokenMark)}
	}
	return made
}
