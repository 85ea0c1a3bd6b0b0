package operate

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// A patch keeps every setting that it does not change. PatchWorkflow converts the stored workflow
// with apiPutWorkflow, changes it, and converts it back. PatchTrigger does the same with
// apiTriggerSettings and setTriggerSettings. If a conversion forgot a setting, every patch would
// delete it.
func TestPatchKeepsEverySetting(t *testing.T) {
	t.Parallel()
	put := api.PutWorkflow{
		AccountID: "account",
		Name:      "name",
		Queue:     "queue",
		RateLimit: &api.RateLimit{Requests: 1, WindowSeconds: 2},
		Triggers: []api.PutTrigger{{
			NodeID:   "node",
			Name:     "name",
			Filter:   json.RawMessage(`{"body":{"a":"b"}}`),
			OrderKey: "ptr:/key",
			Answer:   &api.Answer{WaitSeconds: 5, Raw: true},
		}},
	}
	requireAllFields(t, reflect.ValueOf(put), map[string]bool{
		"SamplePayload": true, // not converted: the stored payload is kept
	})
	spec := registryWorkflowSpec(put)
	if diff := cmp.Diff(put, apiPutWorkflow(&spec)); diff != "" {
		t.Errorf("the conversions change a workflow (-before +after):\n%s", diff)
	}

	settings := apiTriggerSettings(&spec.Triggers[0])
	requireAllFields(t, reflect.ValueOf(settings), map[string]bool{"SamplePayload": true})
	var node edit.TriggerSpec
	setTriggerSettings(&node, settings)
	if diff := cmp.Diff(settings, apiTriggerSettings(&node)); diff != "" {
		t.Errorf("the conversions change a trigger node (-before +after):\n%s", diff)
	}
}

// requireAllFields fails the test if a field of v, or of a struct in v, is zero, unless except
// contains the field's name.
func requireAllFields(t *testing.T, v reflect.Value, except map[string]bool) {
	t.Helper()
	switch v.Kind() { //nolint:exhaustive // no other kind contains structs here
	case reflect.Pointer:
		requireAllFields(t, v.Elem(), except)
	case reflect.Slice:
		for i := range v.Len() {
			requireAllFields(t, v.Index(i), except)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if except[field.Name] {
				continue
			}
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s is not set: give it a value in this test", v.Type(), field.Name)
				continue
			}
			requireAllFields(t, v.Field(i), except)
		}
	}
}
