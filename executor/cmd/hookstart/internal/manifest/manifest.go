// Package manifest reads and writes YAML documents that describe accounts, workflows, senders and
// queues, and computes how an installation differs from them. Operators can keep these documents in
// version control and review changes before they apply them.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hookstart/hookstart/executor/client/api"
)

// Kinds of documents, in the order in which they are applied.
const (
	KindAccount  = "Account"
	KindWorkflow = "Workflow"
	KindSender   = "Sender"
	KindQueue    = "Queue"
)

// kindsText lists the kinds, for error messages.
const kindsText = KindAccount + ", " + KindWorkflow + ", " + KindSender + " or " + KindQueue

// DocumentSet holds documents, or the state of an installation in the same form. Documents that
// were read from files are in the order in which they were read; those of an installation are
// sorted by ID.
type DocumentSet struct {
	Accounts  []Account
	Workflows []Workflow
	Senders   []Sender
	Queues    []Queue

	// locations holds the file and the position of each document, keyed by document key. It is nil
	// if the set was not read from files.
	locations map[string]documentLocation
	// presetIDsByAlias maps the aliases of presets to the IDs by which the API names them. It is
	// nil if the set was read from files.
	presetIDsByAlias map[string]string
	// secretSettingsByPreset holds the names of the secret settings, keyed by preset ID. It is nil
	// if the set was read from files.
	secretSettingsByPreset map[string][]string
}

// Account is the document that describes an account.
type Account struct {
	Kind string `json:"kind" yaml:"kind"`
	ID   string `json:"id" yaml:"id"`
	Name string `json:"name" yaml:"name"`
	Plan string `json:"plan" yaml:"plan"`
	// Events configures the account's operator events. If it is absent, they start no workflow.
	Events *Events `json:"events,omitempty" yaml:"events,omitempty"`
}

// Events says which workflow an account's operator events start, and which events start it.
type Events struct {
	WorkflowID string `json:"workflowId" yaml:"workflowId"`
	// Kinds lists the kinds of events that start the workflow. If it is absent, all kinds of events
	// start it.
	Kinds []string `json:"kinds,omitempty" yaml:"kinds,omitempty"`
	// SilentAfterSeconds is the time without a request after which a node counts as silent, in
	// seconds. If it is absent, the time depends on the node's usual rate of requests.
	SilentAfterSeconds int64 `json:"silentAfterSeconds,omitempty" yaml:"silentAfterSeconds,omitempty"`
}

// Workflow is the document that describes a workflow with its trigger nodes.
type Workflow struct {
	Kind      string `json:"kind" yaml:"kind"`
	ID        string `json:"id" yaml:"id"`
	AccountID string `json:"accountId" yaml:"accountId"`
	Name      string `json:"name" yaml:"name"`
	// Queue is the workflow's queue. If it is absent, the workflow uses the queue "default".
	Queue string `json:"queue,omitempty" yaml:"queue,omitempty"`
	// Active is true to activate the workflow and false to deactivate it. If it is absent (nil),
	// the state does not change.
	Active *bool `json:"active,omitempty" yaml:"active,omitempty"`
	// RateLimit is the workflow's rate limit. If it is absent, the plan's rate limit applies.
	RateLimit *RateLimit `json:"rateLimit,omitempty" yaml:"rateLimit,omitempty"`
	Triggers  []Trigger  `json:"triggers" yaml:"triggers"`

	// updatedAt is when the workflow was last changed. It is set only in the state of an
	// installation.
	updatedAt time.Time
}

// RateLimit is the maximum number of requests of a workflow that are accepted in each time window.
type RateLimit struct {
	Requests      int64 `json:"requests" yaml:"requests"`
	WindowSeconds int64 `json:"windowSeconds" yaml:"windowSeconds"`
}

// Trigger describes a trigger node in the document of its workflow.
type Trigger struct {
	NodeID string `json:"nodeId" yaml:"nodeId"`
	Name   string `json:"name,omitempty" yaml:"name,omitempty"`
	// SamplePayload is the node's sample payload, as YAML or as a string that contains JSON. Such a
	// string is preserved byte by byte. If SamplePayload is absent, the payload does not change.
	SamplePayload Payload `json:"samplePayload,omitempty" yaml:"samplePayload,omitempty"`
	// Filter selects the requests that start an execution. If it is absent, every request starts
	// one.
	Filter Filter `json:"filter,omitempty" yaml:"filter,omitempty"`
	// OrderKey is the location of the order key in a request, such as header:Name. "" means that
	// executions are not ordered.
	OrderKey string `json:"orderKey,omitempty" yaml:"orderKey,omitempty"`
	// Answer makes responses wait for the execution. If it is absent, responses do not wait.
	Answer *Answer `json:"answer,omitempty" yaml:"answer,omitempty"`
}

// Answer makes the response to a request wait until its execution has finished.
type Answer struct {
	// WaitSeconds is the maximum time to wait, counted from the request.
	WaitSeconds int64 `json:"waitSeconds" yaml:"waitSeconds"`
	// RawOutput makes the execution's output the whole response body.
	RawOutput bool `json:"raw,omitempty" yaml:"raw,omitempty"`
}

// Filter is a filter in JSON. In YAML documents it is a mapping.
type Filter json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (f *Filter) UnmarshalJSON(data []byte) error {
	if *f = nil; string(data) != "null" {
		*f = bytes.Clone(data)
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (f Filter) MarshalJSON() ([]byte, error) { return json.RawMessage(f).MarshalJSON() }

// MarshalYAML implements yaml.Marshaler. It keeps the order of the members.
func (f Filter) MarshalYAML() (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(f))
	decoder.UseNumber()
	mapping, err := decodeJSONAsYAML(decoder)
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	mapping.Style = 0
	return mapping, nil
}

// decodeJSONAsYAML reads a JSON value and returns it as YAML, on one line. It does not pass the
// JSON to a YAML parser, because not all JSON is valid YAML: YAML has no surrogate pairs, for
// example.
func decodeJSONAsYAML(from *json.Decoder) (*yaml.Node, error) {
	token, err := from.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		if token == '{' {
			node.Kind = yaml.MappingNode
		}
		for from.More() { // in an object, each name and each value
			child, err := decodeJSONAsYAML(from)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err := from.Token()
		return node, err
	case string:
		return &yaml.Node{
			Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: token,
		}, nil
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	default: // a number, or true or false
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}, nil
	}
}

// Sender is the document that describes the sender of a trigger node. It contains no secret.
type Sender struct {
	Kind       string            `json:"kind" yaml:"kind"`
	WorkflowID string            `json:"workflowId" yaml:"workflowId"`
	NodeID     string            `json:"nodeId" yaml:"nodeId"`
	Preset     string            `json:"preset" yaml:"preset"`
	Settings   map[string]string `json:"settings,omitempty" yaml:"settings,omitempty"`
	// SecretsFrom lists the environment variables that hold the secrets, newest first. They are
	// read only if the node has no sender, or a sender with another preset. Otherwise, the sender
	// keeps its secrets; to change them, use "hookstart sender rotate".
	SecretsFrom []string `json:"secretsFrom,omitempty" yaml:"secretsFrom,omitempty"`
	// SettingsFrom maps secret settings to environment variables. They are read under the same
	// conditions as SecretsFrom.
	SettingsFrom map[string]string `json:"settingsFrom,omitempty" yaml:"settingsFrom,omitempty"`
}

// Payload is a sample payload as JSON text. "" means that the document has no payload.
type Payload string

// UnmarshalJSON accepts any JSON value. A string must itself contain a JSON text, which becomes the
// payload.
func (p *Payload) UnmarshalJSON(data []byte) error {
	if data[0] != '"' {
		*p = Payload(data)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if !json.Valid([]byte(text)) {
		return fmt.Errorf("samplePayload: %.40q is not JSON; a JSON string is written in quotes "+
			"of its own: '\"text\"'", text)
	}
	*p = Payload(text)
	return nil
}

// Read reads the documents of one file. Errors begin with the given file name and the line, as
// compiler errors do.
func (s *DocumentSet) Read(file string, from io.Reader) error {
	documents := yaml.NewDecoder(from)
	for {
		var node yaml.Node
		err := documents.Decode(&node)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return addYAMLLocation(file, err)
		}
		at := documentLocation{file, &node}
		datesToStrings(&node)
		var document map[string]any
		if err := node.Decode(&document); err != nil {
			return addYAMLLocation(file, err)
		}
		if document == nil { // nothing between two separators
			continue
		}
		key, err := s.addDocument(document)
		if err != nil {
			return at.addLocation(err)
		}
		if s.locations == nil {
			s.locations = map[string]documentLocation{}
		}
		s.locations[key] = at
	}
}

// datesToStrings turns the dates and times of a document into strings, so that their text stays as
// it is in the file. If they were decoded as time.Time, 2026-11-26 would become
// "2026-11-26T00:00:00Z" in JSON.
func datesToStrings(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!timestamp" {
		node.SetString(node.Value)
	}
	for _, child := range node.Content {
		datesToStrings(child)
	}
}

// IsEmpty reports whether the set holds no document.
func (s *DocumentSet) IsEmpty() bool {
	return len(s.Accounts)+len(s.Workflows)+len(s.Senders)+len(s.Queues) == 0
}

// AddLocation prefixes an error with the file and line of the document with the given key, if the
// set contains that document.
func (s *DocumentSet) AddLocation(key string, err error) error {
	if at, ok := s.locations[key]; ok {
		return at.addLocation(err)
	}
	return err
}

// documentLocation says where a document was read: the file, and the document's YAML node, which
// knows the lines.
type documentLocation struct {
	file string
	node *yaml.Node
}

// addLocation prefixes an error with the file and a line: the line of the first field that the
// error names and the document has, or else the first line of the document.
func (p documentLocation) addLocation(err error) error {
	line := p.node.Content[0].Line
	for _, name := range fieldNamesInError(err) {
		if at := fieldLine(p.node, name); at > 0 {
			line = at
			break
		}
	}
	return fmt.Errorf("%s:%d: %w", p.file, line, err)
}

var (
	yamlLinePattern     = regexp.MustCompile(`line (\d+): `)
	unknownFieldPattern = regexp.MustCompile(`unknown field "([^"]+)"`)
	leadingFieldPattern = regexp.MustCompile(`^([A-Za-z]+): `)
	lastFieldPattern    = regexp.MustCompile(`[A-Za-z]+$`)
)

// fieldNamesInError returns the names of the fields that an error mentions.
func fieldNamesInError(err error) (names []string) {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		names = append(names, lastFieldPattern.FindString(wrong.Field))
	}
	if problem, ok := errors.AsType[*api.Problem](err); ok {
		for _, e := range problem.Errors {
			names = append(names, lastFieldPattern.FindString(e.Field))
		}
	}
	for _, pattern := range []*regexp.Regexp{unknownFieldPattern, leadingFieldPattern} {
		if found := pattern.FindStringSubmatch(err.Error()); found != nil {
			names = append(names, found[1])
		}
	}
	return names
}

// fieldLine returns the line of the first field with the given name in node or below it, or 0 if
// there is none.
func fieldLine(node *yaml.Node, name string) int {
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 && child.Value == name {
			return child.Line
		}
		if line := fieldLine(child, name); line > 0 {
			return line
		}
	}
	return 0
}

// addYAMLLocation rewrites an error of the YAML package so that, like other errors, it begins with
// the file and the line number.
func addYAMLLocation(file string, err error) error {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
	found := yamlLinePattern.FindStringSubmatchIndex(text)
	if found == nil {
		return fmt.Errorf("%s: %s", file, text)
	}
	return fmt.Errorf("%s:%s: %s", file, text[found[2]:found[3]], text[:found[0]]+text[found[1]:])
}

// addDocument decodes a document according to its kind, adds it to the set and returns its key.
func (s *DocumentSet) addDocument(document map[string]any) (key string, err error) {
	data, err := json.Marshal(document)
	if err != nil {
		return "", err
	}
	switch kind := document["kind"]; kind {
	case KindAccount:
		return decodeDocument(&s.Accounts, data)
	case KindWorkflow:
		return decodeDocument(&s.Workflows, data)
	case KindSender:
		return decodeDocument(&s.Senders, data)
	case KindQueue:
		return decodeDocument(&s.Queues, data)
	case nil:
		return "", fmt.Errorf("kind is missing: %s", kindsText)
	default:
		return "", fmt.Errorf("kind: there is no kind %v, only %s", kind, kindsText)
	}
}

// decodeDocument decodes one document, adds it to a list and returns its key. Unknown fields and
// duplicate documents are errors.
func decodeDocument[T interface{ key() string }](list *[]T, data []byte) (key string, err error) {
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	var object T
	if err := strict.Decode(&object); err != nil {
		return "", &decodeError{err}
	}
	for _, other := range *list {
		if other.key() == object.key() {
			return "", fmt.Errorf("%s is there twice", object.key())
		}
	}
	*list = append(*list, object)
	return object.key(), nil
}

// decodeError is an error of encoding/json without the prefix "json: ", which means nothing to
// operators.
type decodeError struct{ error }

func (e *decodeError) Error() string { return strings.TrimPrefix(e.error.Error(), "json: ") }

func (e *decodeError) Unwrap() error { return e.error }

func (a Account) key() string  { return "account " + a.ID }
func (w Workflow) key() string { return "workflow " + w.ID }
func (s Sender) key() string   { return "sender of " + s.WorkflowID + ", node " + s.NodeID }

// SchemaURL is the URL of the documents' JSON schema. Most editors read it from a comment at the
// beginning of a file.
const SchemaURL = "https://raw.githubusercontent.com/hookstart/hookstart/main/deploy/docs/" +
	"hookstart.schema.json"

// Write writes the documents of the set as YAML. If one of them cannot be written, Write writes
// nothing.
func (s *DocumentSet) Write(to io.Writer) error {
	text := bytes.NewBufferString("# yaml-language-server: $schema=" + SchemaURL + "\n")
	documents := yaml.NewEncoder(text)
	documents.SetIndent(2)
	for _, a := range s.Accounts {
		if err := documents.Encode(a); err != nil {
			return fmt.Errorf("%s: %w", a.key(), err)
		}
	}
	for _, w := range s.Workflows {
		if err := documents.Encode(w); err != nil {
			return fmt.Errorf("%s: %w", w.key(), err)
		}
	}
	for _, sender := range s.Senders {
		if err := documents.Encode(sender); err != nil {
			return fmt.Errorf("%s: %w", sender.key(), err)
		}
	}
	for _, q := range s.Queues {
		if err := documents.Encode(q); err != nil {
			return fmt.Errorf("%s: %w", q.key(), err)
		}
	}
	if err := documents.Close(); err != nil {
		return err
	}
	_, err := to.Write(text.Bytes())
	return err
}

// apiPutWorkflow converts the document to the body of the API call that stores the workflow.
func (w Workflow) apiPutWorkflow() api.PutWorkflow {
	put := api.PutWorkflow{
		AccountID: w.AccountID,
		Name:      w.Name,
		Queue:     w.Queue,
		Triggers:  []api.PutTrigger{},
	}
	if w.RateLimit != nil {
		put.RateLimit = &api.RateLimit{
			Requests:      w.RateLimit.Requests,
			WindowSeconds: w.RateLimit.WindowSeconds,
		}
	}
	for _, t := range w.Triggers {
		trigger := api.PutTrigger{
			NodeID:        t.NodeID,
			Name:          t.Name,
			SamplePayload: json.RawMessage(t.SamplePayload),
			Filter:        json.RawMessage(t.Filter),
			OrderKey:      t.OrderKey,
		}
		if t.Answer != nil {
			trigger.Answer = &api.Answer{WaitSeconds: t.Answer.WaitSeconds, Raw: t.Answer.RawOutput}
		}
		put.Triggers = append(put.Triggers, trigger)
	}
	return put
}
