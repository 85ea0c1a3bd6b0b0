package redact

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/registry"
)

// escapeAll returns a text with every byte percent-encoded.
func escapeAll(text string) string {
	var escaped strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&escaped, "%%%02x", text[i])
	}
	return escaped.String()
}

func TestTokensAreHiddenHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	token := registry.NewToken()
	half := strings.Replace(token, "_", "%5F", 1)
	another := registry.NewToken()
	for name, c := range map[string]struct{ query, text, want string }{
		"as sent": {
			"token=" + token, "/webhooks/wf?token=" + token + "&a=1",
			"/webhooks/wf?token=[token]&a=1",
		},
		"escaped in the URL":  {"token=" + half, "?token=" + half, "?token=[token]"},
		"escaped in the text": {"token=" + token, "u=" + half + "&b", "u=[token]&b"},
		"each byte escaped": {
			"token=" + half, "https://x/?u=" + escapeAll(token), "https://x/?u=[token]",
		},
		"escaped twice":   {"token=" + token, "u=" + url.QueryEscape(half), "u=[token]"},
		"somebody else's": {"token=" + token, "of " + another + ".", "of [token]."},
		"two":             {"token=" + token, token + "," + half, "[token],[token]"},
		"the second parameter": {
			"token=" + token + "&token=second-secret", "a second-secret b", "a [token] b",
		},
		"the second one, escaped": {
			"token=" + token + "&token=second%2Dsecret",
			"second-secret second%2dsecret second%2Dsecret", "[token] [token] [token]",
		},
		"one that is not of a form": {
			"token=wrong+secret%2Fvalue",
			"wrong+secret/value wrong secret/value wrong%20secret%2fvalue",
			"[token] [token] [token]",
		},
		"its beginning": {
			"token=" + strings.Repeat("a", 100), escapeAll(strings.Repeat("a", 80)) + " b",
			"[token] b",
		},
		// The match ends, or begins, in the middle of a character.
		"a part of a character": {
			"token=" + strings.Repeat("a", 64) + "%C3%A9&token=\xa9longer-value",
			"%61" + strings.Repeat("a", 63) + "è élonger-value", "[token]\uFFFD \uFFFD[token]",
		},
		"what cannot be unescaped": {"token=secret%zz", "secret%zz", "[token]"},
		"what is no token": {
			"token=" + token, "hst_short hst%5Fshort 100% %2", "hst_short hst%5Fshort 100% %2",
		},
		"one that is no secret":      {"token=" + token + "&token=a", "a banana", "a banana"},
		"a percent sign at each end": {"token=" + token, "%" + half + "%", "%[token]%"},
	} {
		r := New(&http.Request{URL: &url.URL{RawQuery: c.query}})
		if got := r.RedactText(c.text); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestTokensTravelOnNowhere(t *testing.T) {
	t.Parallel()
	token := registry.NewToken()
	half := strings.Replace(token, "_", "%5F", 1)
	query := "token=" + half + "&token=second-secret&access_token=third-secret&u=" +
		url.QueryEscape("https://x/?t="+half) + "&" + half + "=1"
	tokens := New(&http.Request{
		URL:  &url.URL{RawQuery: query},
		Host: half,
		Header: http.Header{
			"X-Original-Url":            {"/?token=" + half, "second-secret"},
			"Plain":                     {"plain"},
			"Authorization":             {"bEARER fourth-secret"},
			"X-Forwarded-Authorization": {"Bearer fourth-secret, third-secret"},
		},
	})
	got := map[string]map[string][]string{
		"headers": tokens.AddHeadersTo(map[string][]string{}, nil),
		"query":   tokens.Query(),
	}
	want := map[string]map[string][]string{
		"headers": {
			"X-Original-Url":            {"/?token=[token]", "[token]"},
			"Plain":                     {"plain"},
			"X-Forwarded-Authorization": {"Bearer [token], [token]"},
			"Host":                      {"[token]"},
		},
		"query": {"u": {"https://x/?t=[token]"}, "[token]": {"1"}},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAUserAgentShowsNoToken(t *testing.T) {
	t.Parallel()
	half := strings.Replace(registry.NewToken(), "_", "%5F", 1)
	for text, want := range map[string]string{
		"agent wrong%2Dsecret": "agent [token]",
		"agent " + half:        "agent [token]",
		"of hst%5Fshort":       "[token]",
		"curl/8.1":             "curl/8.1",
	} {
		r := &http.Request{
			URL:    &url.URL{RawQuery: "token=wrong-secret"},
			Header: http.Header{"User-Agent": {text}},
		}
		if got := UserAgent(r); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// Token allocates no memory, no matter how long the query is, because the request has not been
// authenticated yet. Parsing the other parameters takes little more than one allocation for each.
func TestQueriesAreCheap(t *testing.T) {
	var query strings.Builder
	query.WriteString("token=x")
	for i := range 4000 {
		fmt.Fprintf(&query, "&%%61%x", i)
	}
	raw := query.String()
	request := &http.Request{URL: &url.URL{RawQuery: raw}}
	if n := testing.AllocsPerRun(10, func() {
		tokens := New(request)
		_ = tokens.Token()
	}); n != 0 {
		t.Errorf("%v allocations to find a token", n)
	}
	if n := testing.AllocsPerRun(10, func() {
		tokens := New(request)
		_ = tokens.RedactText("")
	}); n > 1 {
		t.Errorf("%v allocations for what is to be hidden", n)
	}
	if n := testing.AllocsPerRun(10, func() { _ = nonTokenParameters(raw) }); n > 4100 {
		// 4,100 allocations are enough for one per name, one for all values together, and some for
		// the map.
		t.Errorf("%v allocations for 4,000 parameters", n)
	}
	if others := nonTokenParameters(raw); len(others) != 4000 || others["a0"][0] != "" {
		t.Errorf("%d parameters", len(others))
	}
}
