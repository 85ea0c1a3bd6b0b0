package operate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/filter"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/sender"
)

// FilterTrial is the result of evaluating a filter against the last requests to a trigger node. It
// also lists the fields of these requests to which a filter can refer.
type FilterTrial struct {
	Requests []TriedRequest    // newest first, at most 20, then the sample payload if there is one
	Expired  int               // number of further requests without a stored body
	Places   []FilterableField // most useful first
}

// Starts returns how many of the requests, including the sample payload, would have started an
// execution.
func (t FilterTrial) Starts() (n int) {
	for _, r := range t.Requests {
		if r.Place == "" {
			n++
		}
	}
	return n
}

// TriedRequest is a request together with the result of evaluating the filter against it.
type TriedRequest struct {
	ExecutionID string // "" for the node's sample payload
	AcceptedAt  time.Time
	DeliveryID  string
	Place       string // the field that does not meet its condition; "" if an execution would start
	Value       string // the value at Place, shortened; "" if there is no single value
}

// isSample reports whether the request is the node's sample payload.
func (r TriedRequest) isSample() bool { return r.ExecutionID == "" }

// FilterableField is a field that had a value in at least one of the requests: a header, a query or
// form parameter, or a value in a JSON body.
type FilterableField struct {
	Place string // such as ptr:/action or header:X-GitHub-Event
	// Values holds at most maxValuesPerField values as JSON, most frequent first. Long values are
	// omitted.
	Values []string
	Seen   int // number of requests that have a value in this field
}

// Limits of a filter trial: the number of requests that it evaluates, the number of fields that it
// lists, the number of values that it lists for each field, the length of a value in bytes, and the
// depth to which it looks for fields in JSON.
const (
	maxTriedRequests  = 20
	maxListedFields   = 40
	maxValuesPerField = 6
	maxValueBytes     = 60
	maxFieldDepth     = 5
	// maxPointerBytes limits the length of the JSON pointers in a trial. Fields with longer
	// pointers are skipped, together with everything below them. Without this limit, the long name
	// of an object would be repeated in the pointers of all its members.
	maxPointerBytes = 500
)

// TryFilter evaluates a filter against the last requests that a trigger node received, and against
// its sample payload. Requests that did not match the node's filter are not included, because they
// are not stored. An empty filter matches every request.
func (s *Service) TryFilter(
	ctx context.Context, caller Caller, workflowID, nodeID string, text []byte,
) (FilterTrial, error) {
	return runRead(ctx, s, caller, newAccessRule("TryFilter", accessToWorkflow(workflowID)),
		func(ctx context.Context) (FilterTrial, error) {
			return s.tryFilter(ctx, workflowID, nodeID, text)
		})
}

func (s *Service) tryFilter(
	ctx context.Context, workflowID, nodeID string, text []byte,
) (trial FilterTrial, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}
	compiled, err := filter.Parse(text)
	if err != nil {
		problem := api.FieldError{Field: "filter", Problem: err.Error()}
		return trial, &Error{Code: api.CodeInvalid, Fields: []api.FieldError{problem}}
	}
	node, err := s.config.Editor.Trigger(ctx, workflowID, nodeID)
	if err != nil {
		return trial, err
	}
	requests, err := s.lastRequests(ctx, node, &trial, maxTriedRequests)
	if err != nil {
		return trial, err
	}
	places := fieldValueCounts{}
	for i, r := range requests {
		tried := &trial.Requests[i]
		if place, ok := compiled.Match(r); !ok {
			tried.Place, tried.Value = place, valueAt(place, r)
		}
		places.addRequest(r)
	}
	trial.Places = places.mostUsefulFields()
	return trial, nil
}

// lastRequests returns at most n of the last requests that a trigger node received, followed by the
// node's sample payload as a further request, if there is one. For each request that it returns, it
// appends an entry to trial.Requests. Requests whose message has expired or whose body was not kept
// are left out, and counted in trial.Expired. Requests that were received while this workflow, or a
// deleted one with the same ID, belonged to another account are left out without being counted.
func (s *Service) lastRequests(
	ctx context.Context, node *edit.TriggerInfo, trial *FilterTrial, n int,
) (requests []*sender.Request, err error) {
	records, err := s.config.Store.List(ctx, store.RecordFilter{
		AccountID: node.Workflow.AccountID, WorkflowID: node.Workflow.ID, NodeID: node.NodeID,
		Source: execution.SourceWebhook,
	}, store.RecordPosition{}, n)
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		stored, err := s.readStoredRequest(ctx, record)
		if err != nil {
			return nil, err
		}
		if stored.expired() || stored.payload.Kind == execution.BodyNone {
			trial.Expired++
			continue
		}
		requests = append(requests, stored.toSenderRequest())
		trial.Requests = append(trial.Requests, TriedRequest{
			ExecutionID: record.ID, AcceptedAt: record.AcceptedAt, DeliveryID: record.DeliveryID,
		})
	}
	if node.SamplePayload != nil {
		sample := sender.Request{Method: "POST", Body: node.SamplePayload, KnownJSON: true}
		requests = append(requests, &sample)
		trial.Requests = append(trial.Requests, TriedRequest{})
	}
	return requests, nil
}

// toSenderRequest returns the request as the ingress received it, except that the ingress has
// removed tokens and other credentials from the headers and the query.
func (r storedRequest) toSenderRequest() *sender.Request {
	return &sender.Request{
		Method: "POST", Header: r.headers, Query: rawQuery(r.query),
		Body: r.payload.Body, KnownJSON: r.payload.Kind == execution.BodyJSON,
	}
}

// valueAt returns the value at a place in a request, such as ptr:/action or header:X-Id, shortened
// for display. It returns "" if the request has no string, number or boolean at that place.
func valueAt(place string, r *sender.Request) string {
	key, err := filter.ParseOrderKeyPlace(place)
	if err != nil {
		return ""
	}
	orderKey := key.Key(r)
	if len(orderKey) <= maxValueBytes {
		return orderKey
	}
	end := maxValueBytes
	for !utf8.RuneStart(orderKey[end]) {
		end--
	}
	return orderKey[:end] + "…"
}

// fieldValueCounts holds how many requests have a given value in a given field. The first key is
// the field, such as ptr:/action, and the second one is the value as JSON.
type fieldValueCounts map[string]map[string]int

// overlongValuesKey is the key in fieldValueCounts for all values that are too long to be
// suggested.
const overlongValuesKey = ""

func (p fieldValueCounts) countValue(place, value string) {
	if _, err := sender.ParseRequestPlace(place); err != nil {
		return // the field may contain a secret
	}
	if p[place] == nil {
		p[place] = map[string]int{}
	}
	if len(value) > maxValueBytes {
		value = overlongValuesKey
	}
	p[place][value]++
}

// countTextValue adds 1 to the count of a string value at a place of the request, such as
// ptr:/order/id. The value is counted under its JSON encoding without HTML escaping, as
// JSON.stringify in a browser would write it.
func (p fieldValueCounts) countTextValue(place, value string) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(value) == nil {
		p.countValue(place, strings.TrimSuffix(text.String(), "\n"))
	}
}

// addRequest counts the values of all fields of a request.
func (p fieldValueCounts) addRequest(r *sender.Request) {
	for name, values := range r.Header {
		if !isCommonHeader(name) && len(values) > 0 {
			p.countTextValue("header:"+name, values[0])
		}
	}
	p.addURLEncodedFields("query:", r.Query)
	if document := r.JSONDocument(); document != nil {
		decoder := json.NewDecoder(bytes.NewReader(document))
		decoder.UseNumber()
		_ = p.addJSON(decoder, "", 0) // the document is valid
		return
	}
	contentType := r.Header["Content-Type"]
	const form = "application/x-www-form-urlencoded"
	if len(contentType) > 0 && strings.HasPrefix(contentType[0], form) {
		p.addURLEncodedFields("form:", string(r.Body))
	}
}

func (p fieldValueCounts) addURLEncodedFields(kind, text string) {
	fields, _ := url.ParseQuery(text) // ignore pairs that cannot be parsed
	for name, values := range fields {
		p.countTextValue(kind+name, values[0])
	}
}

// addJSON reads the next value from the decoder, and counts the strings, numbers and booleans in
// it. It skips the elements of arrays, and fields that are nested deeper than maxFieldDepth.
// pointer is the value's JSON pointer, and depth is its nesting depth.
func (p fieldValueCounts) addJSON(decoder *json.Decoder, pointer string, depth int) error {
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		for decoder.More() {
			var name json.Token
			if token == '{' {
				if name, err = decoder.Token(); err != nil {
					return err
				}
			}
			below, isMember := name.(string)
			if !isMember || depth == maxFieldDepth || len(pointer)+len(below) > maxPointerBytes {
				var skipped json.RawMessage
				err = decoder.Decode(&skipped)
			} else {
				err = p.addJSON(decoder, pointer+"/"+pointerEscaper.Replace(below), depth+1)
			}
			if err != nil {
				return err
			}
		}
		_, err = decoder.Token()
		return err
	case string:
		if pointer != "" {
			p.countTextValue("ptr:"+pointer, token)
		}
	case json.Number:
		if pointer != "" {
			p.countValue("ptr:"+pointer, token.String())
		}
	case bool:
		if pointer != "" {
			p.countValue("ptr:"+pointer, strconv.FormatBool(token))
		}
	}
	return nil
}

// pointerEscaper escapes a name for use in a JSON pointer.
var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// isCommonHeader reports whether a header is one that requests commonly have, and that says nothing
// about the event in the request.
func isCommonHeader(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return strings.Contains(name, "Signature") || slices.Contains(commonHeaders, name) ||
		slices.ContainsFunc(commonHeaderPrefixes, func(prefix string) bool {
			return strings.HasPrefix(name, prefix)
		})
}

var (
	commonHeaderPrefixes = []string{
		"Accept", "Content-", "X-Forwarded-", "X-Real-", "Cf-", "X-B3-", "Sec-",
	}
	commonHeaders = []string{
		"User-Agent", "Host", "Connection", "Via", "Forwarded", "Traceparent", "Tracestate",
		"Baggage", "Date", "X-Request-Id", "Priority",
	}
)

// eventWords lists words that suggest, as part of a field's name, that its values describe the
// event. Earlier words give a field a higher rank.
var eventWords = []string{"event", "action", "type", "kind", "topic", "status", "state", "object"}

// mostUsefulFields returns at most maxListedFields fields of requests (headers, query and form
// parameters, JSON pointers) with their most frequent values. Fields that are most useful in a
// filter come first.
func (p fieldValueCounts) mostUsefulFields() []FilterableField {
	var all []FilterableField
	rank := map[string]int{}
	for place, values := range p {
		seen, distinct := 0, len(values)
		for _, n := range values {
			seen += n
		}
		delete(values, overlongValuesKey)
		short := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
			return cmp.Or(values[b]-values[a], strings.Compare(a, b))
		})
		short = short[:min(len(short), maxValuesPerField)]
		all = append(all, FilterableField{Place: place, Values: short, Seen: seen})
		rank[place] = usefulness(place, seen, distinct)
	}
	slices.SortFunc(all, func(a, b FilterableField) int {
		return cmp.Or(rank[b.Place]-rank[a.Place], strings.Compare(a.Place, b.Place))
	})
	return all[:min(len(all), maxListedFields)]
}

// usefulness returns how useful a field is for a filter. The result is higher if the field's name
// suggests the kind of event, if its values recur, and if it is near the top of the document.
func usefulness(place string, seen, distinct int) int {
	rank := -10 * strings.Count(place, "/")
	name := strings.ToLower(place[strings.LastIndexAny(place, "/:")+1:])
	for i, word := range eventWords {
		if name == word {
			rank += 100 - i
		} else if strings.Contains(name, word) {
			rank += 60 - i
		}
	}
	if seen > 1 && distinct > 1 {
		rank += 40 * (seen - distinct) / seen
	}
	if distinct > maxValuesPerField {
		rank -= 40
	}
	return rank
}
