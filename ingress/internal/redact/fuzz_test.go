package redact

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzQuery checks that all parameters of a query except the token parameters are forwarded, and
// that their names and values are valid UTF-8, as a message requires.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"token=a", "x=1&token=a&x=2", "to%6ben=a&token", "a;token=b", "%zz=%ff&token=%zz", "&&=&=a",
		"token=a+b%2Bc", "access_token=a&token=", "token=&to%6Ben=a&access%5Ftoken=b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		redactor := New(&http.Request{URL: &url.URL{RawQuery: raw}})
		token, others := redactor.Token(), nonTokenParameters(raw)
		if others["token"] != nil || others["access_token"] != nil {
			t.Errorf("a token travels on: %q", others)
		}
		pairs, tokens := 0, 0
		for pair := range strings.SplitSeq(raw, "&") {
			name, _, _ := strings.Cut(pair, "=")
			switch {
			case pair == "":
			case unescape(name) == "token", unescape(name) == "access_token":
				tokens++
			default:
				pairs++
			}
		}
		for name, values := range others {
			pairs -= len(values)
			for _, text := range append(values, name) {
				if !utf8.ValidString(text) {
					t.Errorf("%q is not UTF-8", text)
				}
			}
		}
		if pairs != 0 || (token != "" && tokens == 0) {
			t.Errorf("%d pairs lost of %q", pairs, raw)
		}
		// If the standard library can parse the query, both parsers must find the same values.
		if values, err := url.ParseQuery(raw); err == nil {
			want := ""
			for _, value := range append(values["token"], values["access_token"]...) {
				if want == "" {
					want = value
				}
			}
			if utf8.ValidString(want) && want != token {
				t.Errorf("token %q, url.ParseQuery says %q", token, want)
			}
		}
	})
}
