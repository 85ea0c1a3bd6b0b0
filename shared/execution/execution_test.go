package execution_test

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/execution"
)

func TestIDsDifferByEveryPart(t *testing.T) {
	seen := map[string]string{}
	add := func(what, id string) {
		t.Helper()
		if len(id) != 36 || id[14] != '8' || !strings.ContainsRune("89ab", rune(id[19])) {
			t.Errorf("%s: %q is no UUID of version 8", what, id)
		}
		if other, taken := seen[id]; taken {
			t.Errorf("%s and %s have the same ID %s", what, other, id)
		}
		seen[id] = what
	}
	add("a b c", execution.IDForDelivery("a", "b", "c"))
	add("ab - c", execution.IDForDelivery("ab", "", "c"))
	add("a bc -", execution.IDForDelivery("a", "bc", ""))
	add("a b NUL c", execution.IDForDelivery("a", "b", "\x00c"))
	add("rejected a b c", execution.RejectedIDForDelivery("a", "b", "c"))

	// The hashes must never change: every version must recognize deliveries that an earlier version
	// has accepted.
	if got, want := execution.IDForDelivery("wf", "node", "1"),
		"fbc1c36f-f0b3-8ba8-b665-62f72ec4ae8e"; got != want {
		t.Errorf("IDForDelivery changed: %s, was %s", got, want)
	}
}

func TestPayload(t *testing.T) {
	for _, c := range []struct {
		name, contentType, body, input string
		kind                           execution.BodyKind
		bad                            bool
	}{
		{"json", "application/json", ` {"a":1} `, ` {"a":1} `, execution.BodyJSON, false},
		{
			"json, other case and parameters", "Application/JSON ; charset=\"", `1`, `1`,
			execution.BodyJSON, false,
		},
		{"json, broken", "application/json", `{`, ``, 0, true},
		{"json, empty", "application/json", ``, ``, 0, true},
		{
			"vendor json is text", "application/vnd.x+json", `{"a":1}`, `{"body":"{\"a\":1}"}`,
			execution.BodyText, false,
		},
		{"no type", "", "a\nb", `{"body":"a\nb"}`, execution.BodyText, false},
		{"empty text", "text/plain", "", `{"body":""}`, execution.BodyText, false},
		{
			"binary", "application/octet-stream", "\xff\x00",
			`{"body":"/wA=","bodyEncoding":"base64"}`, execution.BodyBinary, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := execution.NewPayload(c.contentType, []byte(c.body))
			if (err != nil) != c.bad {
				t.Fatalf("error: %v", err)
			}
			if p.Kind != c.kind || string(p.WorkflowInput()) != c.input {
				t.Errorf("kind %d, input %s", p.Kind, p.WorkflowInput())
			}
		})
	}
}

func TestStatusFollows(t *testing.T) {
	allowed := map[string]bool{
		"queued>running":    true,
		"queued>succeeded":  true,
		"queued>failed":     true,
		"queued>canceled":   true,
		"running>canceled":  true,
		"running>succeeded": true,
		"running>failed":    true,
	}
	for _, before := range execution.Statuses {
		for _, after := range execution.Statuses {
			if key := string(before) + ">" + string(after); after.Follows(before) != allowed[key] {
				t.Errorf("%s: %t", key, after.Follows(before))
			}
		}
	}
}

func TestValidName(t *testing.T) {
	for _, good := range []string{"a", "A-z_9", strings.Repeat("x", 64)} {
		if !execution.ValidName(good) {
			t.Errorf("refused %q", good)
		}
	}
	for _, bad := range []string{"", "a.b", "a b", "a\n", "ä", "*", ">", strings.Repeat("x", 65)} {
		if execution.ValidName(bad) {
			t.Errorf("accepted %q", bad)
		}
	}
}

func TestValuesAndForms(t *testing.T) {
	v := execution.Values{"X-Github-Event": {"push", "x"}, "q": {""}, "none": nil}
	for name, want := range map[string]string{
		"X-GitHub-Event": "push",
		"x-github-event": "push",
		"q":              "",
		"none":           "",
		"other":          "",
	} {
		if got := v.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	form, err := execution.Payload{Body: []byte("payload=%7B%22a%22%3A1%7D")}.Form()
	if err != nil || form.Get("payload") != `{"a":1}` {
		t.Errorf("%v, %v", form, err)
	}
	if _, err := (execution.Payload{Body: []byte("a=%zz")}).Form(); err == nil {
		t.Error("a broken form was read")
	}
}
