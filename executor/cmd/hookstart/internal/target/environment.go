package target

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
)

// variablePrefix is the prefix of the variables that hookstart sets.
const variablePrefix = "HOOKSTART_"

// maxVariableBytes is the maximum size of a variable, in bytes: Linux allows 128 KB. Only
// HOOKSTART_HEADERS and HOOKSTART_QUERY come close, and only with thousands of characters that JSON
// escapes with six bytes each, such as <.
const maxVariableBytes = 100 << 10

// InheritedEnv returns the variables of the given environment that programs inherit. It omits
// variables that hookstart itself uses, because these hold credentials or have the same names as
// variables that describe an execution.
func InheritedEnv(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		return strings.HasPrefix(variable, variablePrefix) ||
			strings.HasPrefix(variable, "TRACEPARENT=")
	})
}

// executionEnvironment returns the variables that describe an execution. It omits a variable if its
// value is empty, is longer than maxVariableBytes or contains a zero byte.
func executionEnvironment(e runner.Execution) []string {
	variables := map[string]string{
		variablePrefix + "CONTENT_TYPE": e.Payload.ContentType,
		variablePrefix + "HEADERS":      valuesJSON(e.Headers),
		variablePrefix + "QUERY":        valuesJSON(e.Query),
		"TRACEPARENT":                   e.Trace,
	}
	for name, value := range executionHeaders(e) {
		variables[variablePrefix+variableName(name)] = value
	}
	addVariables(variables, variablePrefix+"HEADER_", unambiguousHeaders(e.Headers),
		func(values []string) string {
			return strings.Join(values, ", ")
		})
	addVariables(variables, variablePrefix+"QUERY_", e.Query,
		func(values []string) string { return values[0] })
	list := make([]string, 0, len(variables))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if value := variables[name]; value != "" && len(value) <= maxVariableBytes &&
			strings.IndexByte(value, 0) < 0 {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// executionHeaders returns the values that describe an execution, keyed by header name without the
// prefix Hookstart-. Values may be empty.
func executionHeaders(e runner.Execution) map[string]string {
	return map[string]string{
		"Execution-Id": e.ID,
		"Account-Id":   e.AccountID,
		"Workflow-Id":  e.WorkflowID,
		"Node-Id":      e.NodeID,
		"Queue":        e.Queue,
		"Source":       string(e.Source),
		"Delivery-Id":  e.DeliveryID,
		"Rerun-Of":     e.RerunOf,
		"Replay-Of":    e.ReplayOf,
		"Sender":       e.Sender,
		"Verified":     verifiedText(e),
		"Attempt":      strconv.Itoa(e.Attempt),
		"Accepted-At":  e.AcceptedAt.UTC().Format(time.RFC3339Nano),
	}
}

// verifiedText returns "true" if the sender of the request was verified, otherwise "".
func verifiedText(e runner.Execution) string {
	if e.Verified {
		return "true"
	}
	return ""
}

// valuesJSON returns all names and values as JSON: {"Name": ["value", …]}.
func valuesJSON(values execution.Values) string {
	if len(values) == 0 {
		return "{}"
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // maps of strings always marshal
	}
	return string(text)
}

// unambiguousHeaders drops the headers whose names contain anything but letters, digits and
// hyphens. They could collide with another header's variable: X_Event and X-Event both become
// X_EVENT. Web servers drop them for CGI programs for the same reason.
func unambiguousHeaders(headers execution.Values) execution.Values {
	headers = maps.Clone(headers)
	maps.DeleteFunc(headers, func(name string, _ []string) bool {
		return strings.ReplaceAll(variableName(name), "_", "-") != strings.ToUpper(name)
	})
	return headers
}

// addVariables adds a variable for each name in values. join combines the values of one name into
// the value of the variable. If two names result in the same variable, the first one in
// alphabetical order is used.
func addVariables(
	variables map[string]string, prefix string, values execution.Values, join func([]string) string,
) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		variable := prefix + variableName(name)
		if _, taken := variables[variable]; !taken && len(values[name]) > 0 {
			variables[variable] = join(values[name])
		}
	}
}

// variableName converts a name to the form of an environment variable's name: in upper case, with _
// for every character that shells do not allow there.
func variableName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, name)
}
