package sender

import (
	"net/url"
	"strings"
	"testing"
)

// TestTable checks that presets.json can be parsed, that every preset compiles, and that each has a
// link to the provider's documentation, labels for its settings and, if the body is not signed, a
// note about that.
func TestTable(t *testing.T) {
	entries, err := parsePresetTable(presetsJSON)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if u, err := url.Parse(e.Docs); err != nil || u.Scheme != "https" {
			t.Errorf("%s: docs %q", e.ID, e.Docs)
		}
		for _, s := range e.allSettings() {
			if s.Name == "" || s.Label == "" {
				t.Errorf("%s: a setting without a name or label: %+v", e.ID, s)
			}
		}
		for i := range e.VerificationMethods {
			m, err := e.VerificationMethods[i].compile(nil)
			if err != nil {
				t.Errorf("%s: %v", e.ID, err)
			}
			if !m.message.coversBody() && m.scheme != schemeStatic && m.scheme != schemeBasic &&
				!strings.Contains(strings.Join(e.Notes, " "), "not the event") {
				t.Errorf("%s: the body is not signed, and no note says so", e.ID)
			}
		}
	}
}

// A table of presets is refused if an entry has an unknown member, is incomplete or contradictory,
// or checks a value that is not signed.
func TestBadTables(t *testing.T) {
	entry := func(verify string) string {
		return `[{"id":"x","title":"X","docs":"https://x","setup":["s"],"secret":{"label":"s"},"verify":[` + verify + `]}]`
	}
	const good = `"scheme":"hmac","hash":"sha256","encoding":"hex","signature":"header:S"`
	if _, err := parsePresetTable([]byte(entry(`{` + good + `}`))); err != nil {
		t.Fatal(err)
	}
	if _, err := parsePresetTable([]byte(entry(`{` + good +
		`,"time":{"from":"header:T","unit":"s","unsigned":"the provider repeats within a minute"}}`))); err != nil {
		t.Error("a time that is not signed, with the reason:", err)
	}
	for text, want := range map[string]string{
		entry(`{` + good +
			`,"nonsense":1}`): "unknown field",
		entry(`{` + good +
			`,"message":"{body}{nobody}"}`): "{nobody}",
		entry(`{` + good +
			`,"message":"{body"}`): "without a }",
		entry(`{` + good +
			`,"message":"body}"}`): "without a {",
		entry(`{` + good +
			`,"message":"{time}{body}"}`): "source",
		entry(`{` + good +
			`,"time":{"from":"header:T","unit":"s"}}`): "not signed",
		entry(`{` + good +
			`,"message":"{time}","time":{"from":"header:T","unit":"h"}}`): "unit",
		entry(`{` + good +
			`,"message":"{time}{body}","time":{"from":"signature:t","unit":"s"}}`): "split",
		entry(`{"scheme":"hmac","encoding":"hex","signature":"header:S"}`):              "hash",
		entry(`{"scheme":"hmac","hash":"md5","encoding":"hex","signature":"header:S"}`): "hash",
		entry(`{"scheme":"hmac","hash":"sha256","signature":"header:S"}`):               "encoding",
		entry(`{"scheme":"none","signature":"header:S"}`):                               "scheme",
		entry(`{"scheme":"static","signature":"body"}`):                                 "source",
		entry(`{` + good +
			`,"key":"rot13"}`): "key",
		entry(`{` + good +
			`,"when":{"nowhere":"x"}}`): "source",
		`[{"id":"x","title":"X","docs":"https://x","setup":["s"],"secret":{"label":"s"}}]`:                                                  "secret",
		`[{"id":"x","title":"X","docs":"https://x","setup":["s"]},{"id":"y","aliases":["x"],"title":"X","docs":"https://x","setup":["s"]}]`: "twice",
		entry(`{` + good +
			`,"delivery":["header:Id"]}`): "not signed",
		entry(`{"scheme":"static","signature":"header:S","delivery":["ptr:/id"]}`):                                                "not signed",
		`[{"id":"x","title":"X","docs":"https://x"}]`:                                                                             "setup",
		`[{"id":"x","title":"X","docs":"https://x","setup":["s"],"delivery":["id"]}]`:                                             "source",
		`[{"id":"x","title":"X","docs":"https://x","setup":["s"],"handshakes":[{"title":"t"}]}]`:                                  "recognised",
		`[{"id":"x","title":"X","docs":"https://x","setup":["s"],"handshakes":[{"title":"t","when":{"ptr:/a":"b"},"json":"{"}]}]`: "JSON",
		`[{"id":"x","title":"X","docs":"https://x","setup":["s"],"responses":[{"json":"{"}]}]`:                                    "JSON",
	} {
		if _, err := parsePresetTable([]byte(text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
