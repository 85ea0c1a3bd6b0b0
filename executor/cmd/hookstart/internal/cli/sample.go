package cli

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hookstart/hookstart/executor/client/api"
)

type triggerSampleCmd struct {
	nodeArgs
	File string `help:"Set it to what is in this file. -: stdin." placeholder:"PATH" xor:"payload"`
	Data string `help:"Set it to this." placeholder:"JSON" xor:"payload"`
}

func (*triggerSampleCmd) Help() string {
	return `Tests, and run-again --sample, run on the sample payload: any JSON value. It is
printed as it is.

Examples:

  hookstart trigger sample demo
  hookstart trigger sample demo --data '{"hello": "world"}'`
}

func (v *triggerSampleCmd) Run(s *session) error {
	if v.File == "" && v.Data == "" {
		t, err := v.getTrigger(s)
		if err != nil {
			return err
		}
		return s.showSample(t, v.Workflow)
	}
	sample, name := []byte(v.Data), "--data"
	if v.File != "" {
		var err error
		if sample, err = s.readInputFile("--file", v.File); err != nil {
			return err
		}
		name = "--file"
	}
	if err := validateJSON(name, sample,
		"a text needs its quotation marks, too: '\"text\"'"); err != nil {
		return err
	}
	id, err := v.resolveNodeID(s)
	if err != nil {
		return err
	}
	t, err := s.client.SetSamplePayload(s.ctx, v.Workflow, id, sample)
	if err != nil {
		return err
	}
	if s.jsonOutput {
		return s.showSample(t, v.Workflow)
	}
	return s.printLine("The sample payload of %s of %s is set: %d bytes", id, v.Workflow,
		len(t.SamplePayload))
}

// showSample prints only the node's sample payload, because other fields contain tokens.
func (s *session) showSample(t api.Trigger, workflowID string) error {
	if s.jsonOutput {
		return s.printRaw(t.SamplePayload)
	}
	if !isNonNullJSON(t.SamplePayload) {
		s.printNote("No sample payload. Set one: hookstart trigger sample %s %s --data "+
			"'{\"hello\": "+
			"\"world\"}'", workflowID, t.NodeID)
		return nil
	}
	return s.printRaw([]byte(indentJSON(t.SamplePayload)))
}

func isNonNullJSON(value json.RawMessage) bool {
	return len(value) > 0 && !bytes.Equal(value, []byte("null"))
}

// withSampleHint adds a hint if err says that the node has no sample payload: the command that sets
// one. It returns any other error unchanged.
func withSampleHint(err error, workflowID, nodeID string) error {
	if api.IsCode(err, api.CodeSamplePayloadMissing) {
		return &hintError{err, fmt.Sprintf(
			"hookstart trigger sample %s %s --data '{\"hello\": \"world\"}'", workflowID, nodeID)}
	}
	return err
}
