package manifest_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/manifest"
)

// The JSON schema that editors use to check documents has exactly the fields that the documents can
// have.
func TestSchemaHasTheFields(t *testing.T) {
	data, err := os.ReadFile("../../../../../deploy/docs/hookstart.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type definition struct {
		Required             []string
		Properties           map[string]map[string]any
		AdditionalProperties any
	}
	var schema struct {
		ID   string                `json:"$id"`
		Defs map[string]definition `json:"$defs"`
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	if schema.ID != manifest.SchemaURL {
		t.Errorf("it says it is at %s, files at %s", schema.ID, manifest.SchemaURL)
	}
	for name, of := range map[string]any{
		manifest.KindAccount:  manifest.Account{},
		manifest.KindWorkflow: manifest.Workflow{},
		manifest.KindSender:   manifest.Sender{},
		manifest.KindQueue:    manifest.Queue{},
		"QueueStream":         manifest.QueueStream{},
		"Trigger":             manifest.Trigger{},
		"RateLimit":           manifest.RateLimit{},
		"Answer":              manifest.Answer{},
		"Events":              manifest.Events{},
	} {
		var fields []string
		for _, field := range reflect.VisibleFields(reflect.TypeOf(of)) {
			if !field.IsExported() {
				continue
			}
			tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields = append(fields, tag)
			may := options == "omitempty" || tag == "plan"
			if slices.Contains(schema.Defs[name].Required, tag) == may {
				t.Errorf("%s.%s: may be left out: %v, and the schema says otherwise", name, tag,
					may && tag != "name")
			}
		}
		slices.Sort(fields)
		if known := slices.Sorted(maps.Keys(schema.Defs[name].Properties)); !slices.Equal(known,
			fields) || schema.Defs[name].AdditionalProperties != false {
			t.Errorf("%s has %q in the schema, and %q in the code", name, known, fields)
		}
	}
}
