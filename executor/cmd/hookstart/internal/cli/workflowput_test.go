package cli

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
)

// "workflow put" with --trigger replaces the list of nodes. A node that is in both the old and the
// new list keeps all of its settings.
func TestWorkflowPutKeepsSettingsOfNodes(t *testing.T) {
	t.Parallel()
	have := api.WorkflowTrigger{
		NodeID: "node", Name: "name", Filter: json.RawMessage(`{"ptr:/a":"b"}`),
		OrderKey: "ptr:/key", Answer: &api.Answer{WaitSeconds: 5, Raw: true},
	}
	v := workflowPutCmd{Trigger: []string{"new", "node"}}
	put := v.triggersToPut([]api.WorkflowTrigger{have})[1]
	was, is := reflect.ValueOf(have), reflect.ValueOf(put)
	for i := range is.NumField() {
		name := is.Type().Field(i).Name
		if name == "SamplePayload" { // absent: the node keeps it
			continue
		}
		field := was.FieldByName(name)
		switch {
		case !field.IsValid():
			t.Errorf("api.WorkflowTrigger lacks %s, so a node that stays cannot keep it", name)
		case field.IsZero():
			t.Errorf("%s is not set: give it a value in this test", name)
		case !reflect.DeepEqual(is.Field(i).Interface(), field.Interface()):
			t.Errorf("%s: %v became %v", name, field, is.Field(i))
		}
	}
}
