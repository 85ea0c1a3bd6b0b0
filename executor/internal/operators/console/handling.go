package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// filterCondition is a condition of a node's filter in human-readable form.
type filterCondition struct {
	Place string // place in the request, such as ptr:/action
	Text  string // condition on the value at Place, in words
}

// filterConditions returns the conditions of a filter, in order. It returns nil for an invalid
// filter, but such a filter is never stored.
func filterConditions(filter json.RawMessage) (conditions []filterCondition) {
	decoder := json.NewDecoder(bytes.NewReader(filter))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil
		}
		place, _ := name.(string)
		conditions = append(conditions, filterCondition{place, filterConditionText(value)})
	}
	return conditions
}

// filterOperatorWords maps filter operators to the words that precede their operand.
var filterOperatorWords = map[string]string{
	"$prefix": "begins with",
	"$gt":     "is more than",
	"$gte":    "is at least",
	"$lt":     "is less than",
	"$lte":    "is at most",
}

// filterConditionText returns a condition in words. It shows nested conditions as JSON.
func filterConditionText(value json.RawMessage) string {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil && list != nil {
		return "is " + alternativesText(list)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil || object == nil {
		return "is " + string(value)
	}
	texts := make([]string, 0, len(object))
	for name, operand := range object {
		words, known := filterOperatorWords[name]
		switch {
		case known:
			texts = append(texts, words+" "+string(operand))
		case name == "$exists" && string(operand) == "true":
			texts = append(texts, "is there")
		case name == "$exists":
			texts = append(texts, "is not there")
		case name == "$not" && operand[0] == '[' && json.Unmarshal(operand, &list) == nil:
			texts = append(texts, "is not "+alternativesText(list))
		case name == "$not" && operand[0] != '{':
			texts = append(texts, "is not "+string(operand))
		default:
			texts = append(texts, name+" "+string(operand))
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, " and ")
}

func alternativesText(list []json.RawMessage) string {
	texts := make([]string, len(list))
	for i, value := range list {
		texts[i] = string(value)
	}
	return strings.Join(texts, " or ")
}

// filterTrial is the template data for the result of trying a filter: which of the most recent
// requests match it.
type filterTrial struct {
	operate.FilterTrial
	FilterTried   bool // false if the filter was left blank
	NodeHasFilter bool // the node currently has a filter
}

// maxFilterFormBytes is the maximum size, in bytes, of a form with a filter. A filter can be up to
// 16 KiB long, and URL encoding can triple its size.
const maxFilterFormBytes = 64 << 10

// tryFilter shows which of the last requests to a node would match an unsaved filter. If the filter
// is invalid, it responds with 422 and a text that describes the error.
func (c *Console) tryFilter(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFilterFormBytes)
	workflowID, nodeID := r.PostFormValue("workflow"), r.PostFormValue("node")
	text := r.PostFormValue("filter")
	caller := signin.Caller(r.Context())
	tried, err := c.Operate.TryFilter(r.Context(), caller, workflowID, nodeID, []byte(text))
	if isInvalid(err) {
		noteInLogEvent(r, "fragment", nil)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(firstFieldProblem(err)))
		return
	}
	if err != nil {
		c.renderCallError(w, r, err)
		return
	}
	node, err := c.Operate.TriggerNode(r.Context(), caller, workflowID, nodeID)
	if err != nil {
		c.renderCallError(w, r, err)
		return
	}
	c.writeTemplate(w, r, http.StatusOK, "fragment", "filter-trial", filterTrial{
		FilterTrial: tried, FilterTried: strings.TrimSpace(text) != "",
		NodeHasFilter: len(filterConditions(node.Filter)) > 0,
	})
}

// firstFieldProblem returns the description of the first invalid field in err, or the text of err
// if it names no field.
func firstFieldProblem(err error) string {
	if refused, ok := errors.AsType[*operate.Error](err); ok && len(refused.Fields) > 0 {
		return refused.Fields[0].Problem
	}
	return err.Error()
}

// setFilterOrderAndAnswer copies the node's filter, order key and answer settings to the template
// data.
func (t *triggerPane) setFilterOrderAndAnswer(from api.Trigger) {
	t.Conditions, t.Filtered = filterConditions(from.Filter), from.Filtered
	t.OrderKey, t.Answer = from.OrderKey, from.Answer
}
