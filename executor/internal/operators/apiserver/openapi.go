package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humahttprouter"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// Tags by which the OpenAPI document groups the calls.
const (
	tagAccounts   = "Accounts and plans"
	tagWorkflows  = "Workflows"
	tagTriggers   = "Triggers"
	tagExecutions = "Executions"

	tagAccess       = "Access"
	tagInstallation = "Installation"
	tagDeadLetters  = "Dead letters"
)

const (
	maxBodyBytes = 1 << 20
	bodyTimeout  = 30 * time.Second
)

const securitySchemeName = "token"

// humaConfig returns huma's default configuration with a few changes. In particular, huma serves no
// documentation pages, because these pages load scripts from other sites. It serves no schemas
// either, and adds no links to schemas to responses.
func humaConfig() huma.Config {
	config := huma.DefaultConfig("hookstart: the operators' API", "1")
	config.CreateHooks = nil
	config.RejectUnknownQueryParameters = true // a filter with a typo would match everything
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	config.Info.Description = "Accounts, workflows with their webhook triggers, and executions. " +
		"A viewer reads, without tokens; an editor also changes workflows, reruns and requeues; " +
		"an admin also changes accounts and keys. A key that sees one account does not find what " +
		"belongs to another. A change that was answered without an error is in force at every " +
		"process, from the very next request. Every call can fail with `" + api.CodeUnauthorized +
		"`, `" + api.CodeForbidden + "`, `" +
		api.CodeInvalid + "`, `" + api.CodeUnavailable + "` or `" + api.CodeInternal + "`."
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		securitySchemeName: {
			Type:        "http",
			Scheme:      "bearer",
			Description: "The executor's admin token, or a key.",
		},
	}
	// This URL is relative to the URL of the document.
	config.Servers = []*huma.Server{{URL: "/"}}
	config.Security = []map[string][]string{{securitySchemeName: {}}}
	config.Tags = []*huma.Tag{
		{Name: tagAccounts, Description: "Who owns workflows, and what they may do."},
		{Name: tagWorkflows, Description: "What webhooks start."},
		{
			Name:        tagTriggers,
			Description: "The webhook trigger nodes of a workflow: URLs, tokens, sample payloads.",
		},
		{Name: tagExecutions, Description: "What was started, and how it ended."},
		{Name: tagAccess, Description: "Keys: who may call the API, and what they may do and see."},
		{Name: tagInstallation, Description: "What all workflows share."},
		{
			Name: tagDeadLetters,
			Description: "Failed executions, and messages that were put aside, until an operator " +
				"requeues them.",
		},
	}
	return config
}

func openAPIDocument(document *huma.OpenAPI) []byte {
	text, err := json.Marshal(document)
	if err != nil {
		panic(err) // a programming error, which would show at every start
	}
	// huma writes "patternDescription", which it uses in errors, next to "pattern". OpenAPI does
	// not define this member, and linters reject it.
	return patternDescriptionRE.ReplaceAll(text, nil)
}

// patternDescriptionRE matches the "patternDescription" member of a schema, together with the comma
// after or before it. One of these commas always exists, because such a schema has other members.
var patternDescriptionRE = regexp.MustCompile(
	`"patternDescription":"[^"]*",|,"patternDescription":"[^"]*"`,
)

// operationSpec describes one operation of the API.
type operationSpec struct {
	method, path  string // path without api.PathPrefix
	id            string // operationId
	tag           string
	summary       string
	description   string
	problemCodes  []string // codes of its problems, in addition to those of all calls
	responses     map[string]*huma.Response
	successStatus int   // status of a success; 0 means 200, or 204 without a body
	anyJSON       bool  // the body may be any JSON; the handler validates it
	bodyLimit     int64 // maximum length of the body, in bytes; 0 means maxBodyBytes
}

// leastRole returns the lowest role that may make the call. Package operate defines this role for
// each operation, and checks the caller's role again when the operation is called.
func (c operationSpec) leastRole() operate.Role {
	least, ok := operate.RoleOfRoute(c.id)
	if !ok {
		panic("no operation of package operate has the ID " + c.id) // it would panic at every start
	}
	return least
}

// requireRole returns a middleware that responds with 403 to callers whose role is lower than
// least. It checks the role before the request is read, so that such a caller does not get a 422
// about the body.
func requireRole(least operate.Role) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if err := signin.Caller(ctx.Context()).RequireRole(least); err != nil {
			r, w, _ := humahttprouter.Unwrap(ctx)
			writeProblem(w, r, problemOf(err))
			return
		}
		next(ctx)
	}
}

// register adds a call to the API. Its responses have a T as the body.
func register[I, T any](
	to huma.API, c operationSpec, handle func(context.Context, operate.Caller, *I) (T, error),
) {
	type output struct{ Body T }
	registerOperation(to, c, func(ctx context.Context, caller operate.Caller, in *I) (*output,
		error,
	) {
		body, err := handle(ctx, caller, in)
		return &output{body}, err
	})
}

// registerPut registers an operation that creates or replaces a T. It responds with 201 if it has
// created the T, and with 200 if it has replaced it.
func registerPut[I, T any](
	to huma.API, c operationSpec,
	handle func(context.Context, operate.Caller, *I) (operate.PutResult[T], error),
) {
	type output struct {
		Status int
		Body   T
	}
	c.responses = map[string]*huma.Response{"201": successResponse[T](to, "Created")}
	registerOperation(to, c, func(ctx context.Context, caller operate.Caller, in *I) (*output,
		error,
	) {
		put, err := handle(ctx, caller, in)
		return &output{createdStatus(put.Created), put.Value}, err
	})
}

func createdStatus(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// registerNoContent adds a call that responds without a body.
func registerNoContent[I any](
	to huma.API, c operationSpec, handle func(context.Context, operate.Caller, *I) error,
) {
	registerOperation(to, c, func(ctx context.Context, caller operate.Caller, in *I) (*struct{},
		error,
	) {
		return nil, handle(ctx, caller, in)
	})
}

// registerOperation adds a call to the API. Its response is an O, a struct from which huma takes
// the status, the headers and the body. handle may return any error; problemOf converts it to the
// problem that the client receives.
func registerOperation[I, O any](
	to huma.API, c operationSpec, handle func(context.Context, operate.Caller, *I) (*O, error),
) {
	op := huma.Operation{
		Method: c.method, Path: api.PathPrefix + c.path, OperationID: c.id, Tags: []string{c.tag},
		Summary: c.summary, Description: c.description, DefaultStatus: c.successStatus,
		// huma considers a body of exactly the maximum length truncated, so allow one more byte.
		MaxBodyBytes: maxBodyBytes + 1, BodyReadTimeout: bodyTimeout, SkipValidateBody: c.anyJSON,
		Responses: c.responses, Middlewares: huma.Middlewares{requireRole(c.leastRole())},
	}
	if c.bodyLimit > 0 {
		op.MaxBodyBytes = c.bodyLimit + 1
	}
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	if c.anyJSON {
		op.RequestBody = &huma.RequestBody{}
	}
	codes := append([]string{
		api.CodeUnauthorized, api.CodeForbidden, api.CodeInvalid, api.CodeUnavailable,
		api.CodeInternal,
	}, c.problemCodes...)
	if _, ok := any(new(I)).(conditionalInput); ok {
		codes = append(codes, api.CodeChangedSince)
	}
	for _, code := range codes {
		op.Errors = append(op.Errors, problemKinds[code].status)
	}
	huma.Register(to, op, func(ctx context.Context, in *I) (*O, error) {
		var out *O
		var err error
		if only, ok := any(in).(conditionalInput); ok {
			ctx, err = only.withCondition(ctx)
		}
		if err == nil {
			out, err = handle(ctx, signin.Caller(ctx), in)
		}
		if err != nil {
			p := problemOf(err)
			logProblem(ctx, p, err)
			return nil, p
		}
		return out, nil
	})
	if c.anyJSON { // huma describes raw bytes as a binary file
		op.RequestBody.Content["application/json"].Schema = &huma.Schema{
			Description: "Any JSON value.",
		}
	}
	if replaced, created := op.Responses["200"], c.responses["201"]; created != nil {
		created.Headers = replaced.Headers
	}
	describeProblems(op.Responses, codes)
}

// describeProblems documents the problem codes of each status. It documents the Retry-After header
// for the statuses whose problems may have one.
func describeProblems(responses map[string]*huma.Response, codes []string) {
	byStatus, retryable := map[string][]string{}, map[string]bool{}
	for _, code := range codes {
		status := strconv.Itoa(problemKinds[code].status)
		retryable[status] = retryable[status] || problemKinds[code].retryAfterSeconds > 0
		if text := "`" + code + "`"; !slices.Contains(byStatus[status], text) {
			byStatus[status] = append(byStatus[status], text)
		}
	}
	for status, list := range byStatus {
		response := responses[status]
		if response == nil {
			continue
		}
		slices.Sort(list)
		response.Description = strings.Join(list, ", ")
		if retryable[status] {
			response.Headers = map[string]*huma.Param{"Retry-After": {
				Description: "Seconds.", Schema: &huma.Schema{Type: huma.TypeInteger},
			}}
		}
	}
}

// successResponse returns the documentation of a response whose body is a T. Use it for a success
// status other than the call's default one.
func successResponse[T any](group huma.API, description string) *huma.Response {
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{"application/json": {Schema: schemaOf[T](group)}},
	}
}
