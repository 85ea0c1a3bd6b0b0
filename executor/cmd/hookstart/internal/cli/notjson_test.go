package cli

import (
	"strings"
	"testing"
)

func TestWhereJSONIsWrong(t *testing.T) {
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	for text, want := range map[string]string{
		`{"a": [1, 2.50]}`: "", " null\n": "", deep: "",
		"":            "line 1, column 1: it ends too early",
		"{\"a\"\n":    "line 1, column 5: it ends too early",
		"[1,\n  2,\n": "line 2, column 5: it ends too early",
		"hello":       "line 1, column 1: invalid character 'h' looking for beginning of value",
		"{\n  \"größe\": no\n}": "line 2, column 13: invalid character 'o' in literal null " +
			"(expecting 'u')",
		"{} {}":         "line 1, column 4: invalid character '{' after top-level value",
		"[1,\n]":        "line 2, column 1: invalid character ']' looking for beginning of value",
		"[\n\"a\xff\"]": "line 2, column 3: this is not UTF-8",
		"\ufeff{}":      "line 1, column 1: invalid character 'ï' looking for beginning of value",
		deep + "]":      "line 1, column 10001: invalid character '[' exceeded max depth",
	} {
		err := validateJSON("--file", []byte(text), "")
		switch {
		case want == "" && err != nil, want != "" && err == nil:
			t.Errorf("%.40q: %v", text, err)
		case err != nil && err.Error() != "--file is not valid JSON: "+want:
			t.Errorf("%.40q: got %q, want %q", text, err, want)
		}
	}
}
