package apiclient

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
)

func TestDecodeLeavesOthersValuesAlone(t *testing.T) {
	deep := strings.Repeat("[", 20_000) + `"},\"{"` + strings.Repeat("]", 20_000)
	var e api.ExecutionDetail
	text := ` {"executionId":"a}\",b", "input" : ` + deep +
		`,"headers":{"input":["x"]},"output": 1.50 ,"error":null} `
	if err := Decode([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	if e.ExecutionID != `a}",b` || string(e.Input) != deep || string(e.Output) != "1.50" ||
		len(e.Headers["input"]) != 1 {
		t.Errorf("%s %.50s %s %v", e.ExecutionID, e.Input, e.Output, e.Headers)
	}

	var trigger api.Trigger
	if err := Decode([]byte(`{"nodeId":"n","samplePayload":null,"token":"t"}`),
		&trigger); err != nil {
		t.Fatal(err)
	}
	if trigger.NodeID != "n" || trigger.Token != "t" || string(trigger.SamplePayload) != "null" {
		t.Errorf("%+v", trigger)
	}
}

func TestDecodeRefusesWhatIsNotAnObject(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `{`, `{"input":[`, `{"input":1`, `{"a":1}}`, `{"a":1}{}`, `<html>`,
		`{"executionId":1}`, `{"a" 1}`, `{"input":1,"output":2,}x`,
	} {
		var e api.ExecutionDetail
		if err := Decode([]byte(text), &e); err == nil {
			t.Errorf("%s: %+v", text, e)
		}
	}
}

func FuzzCutMembers(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,"}"]},"input":[{}],"c":"\""}`))
	f.Add([]byte(`{"input":}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rest, values := cutMembers(text, "input")
		if !json.Valid(text) {
			return // members that are cut out are not decoded here
		}
		if value, ok := values["input"]; !json.Valid(rest) || ok && !json.Valid(value) {
			t.Errorf("%q became %q and %q", text, rest, value)
		}
	})
}
