package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/shared/webhook"
)

// problemKind holds what all problems with the same code have in common.
type problemKind struct {
	status int
	title  string
	// defaultDetail is the default text of problems with the code. If it is "", the default is the
	// text that operate.Explanation returns for the code.
	defaultDetail string
	// retryAfterSeconds is the number of seconds after which a retry can succeed. 0 means that a
	// retry cannot succeed.
	retryAfterSeconds int64
}

// problemKinds holds the problemKind of each code. It is the only table that maps codes to
// statuses.
var problemKinds = map[string]problemKind{
	api.CodeUnauthorized:     {status: http.StatusUnauthorized, title: "Unauthorized"},
	api.CodeForbidden:        {status: http.StatusForbidden, title: "Forbidden"},
	api.CodeNotFound:         {status: http.StatusNotFound, title: "Not found"},
	api.CodeMethodNotAllowed: {status: http.StatusMethodNotAllowed, title: "Method not allowed"},
	api.CodeInvalid:          {status: http.StatusUnprocessableEntity, title: "Invalid"},
	api.CodeBodyTooLarge: {
		status: http.StatusRequestEntityTooLarge, title: "Body too large",
		defaultDetail: fmt.Sprintf("A body may have %d bytes at most.", maxBodyBytes),
	},
	api.CodePlanLimitExceeded: {
		status: http.StatusForbidden, title: "Plan limit exceeded",
	},
	api.CodeWebhooksNotInPlan: {
		status: http.StatusForbidden, title: "Webhooks not in plan",
	},
	api.CodeSamplePayloadMissing: {
		status: http.StatusConflict, title: "Sample payload missing",
	},
	api.CodeTooManyTokens: {
		status: http.StatusConflict, title: "Too many tokens",
	},
	api.CodeTooManySecrets: {
		status: http.StatusConflict, title: "Too many secrets",
	},
	api.CodeTooManyStreams: {
		status:            http.StatusTooManyRequests,
		title:             "Too many streams",
		retryAfterSeconds: 5,
	},
	api.CodeLastSecret: {
		status: http.StatusConflict, title: "Last secret",
	},
	api.CodeIngressTooOld: {
		status: http.StatusConflict, title: "Ingress too old",
	},
	api.CodeQueueMoves: {
		status: http.StatusConflict, title: "Queue moves",
	},
	api.CodeStreamFull: {status: http.StatusConflict, title: "Stream full"},
	api.CodeSecretsKeyMissing: {
		status: http.StatusConflict, title: "Secrets key missing",
	},
	api.CodeSenderCannotSign:    {status: http.StatusConflict, title: "Sender cannot sign"},
	api.CodeEndpointUnreachable: {status: http.StatusBadGateway, title: "Endpoint unreachable"},
	api.CodeNotFailed: {
		status: http.StatusConflict, title: "Not failed",
	},
	api.CodeInputExpired: {
		status: http.StatusConflict, title: "Input expired",
	},
	api.CodeAccountNotEmpty: {
		status: http.StatusConflict, title: "Account not empty",
	},
	api.CodeChangedSince: {
		status: http.StatusPreconditionFailed,
		title:  "Changed since",
		defaultDetail: "It is not the version any more that If-Match names, or it exists already " +
			"and If-None-Match is *. Read it again, and decide anew.",
	},
	api.CodeNotFinished: {
		status: http.StatusConflict, title: "Not finished",
	},
	api.CodeAlreadyEnded: {
		status: http.StatusConflict, title: "Already ended",
	},
	api.CodeBodyNotKept: {
		status: http.StatusConflict, title: "Body not kept",
	},
	api.CodeRefused: {
		status: http.StatusConflict, title: "Refused",
	},
	api.CodeUndecodable: {
		status: http.StatusConflict, title: "Undecodable",
	},
	api.CodeNotEmpty: {
		status: http.StatusConflict, title: "Not empty",
	},
	api.CodeNotConfirmed: {
		status:            http.StatusServiceUnavailable,
		title:             "Not confirmed",
		retryAfterSeconds: 1,
	},
	api.CodeUnavailable: {
		status: http.StatusServiceUnavailable, title: "Unavailable", retryAfterSeconds: 1,
	},
	api.CodeInternal: {
		status: http.StatusInternalServerError, title: "Internal error",
	},
}

// problem is an api.Problem with the methods that huma requires of an error response.
type problem struct {
	api.Problem
}

// newProblem returns a problem with a code. If detail is "", the problem has the default text of
// the code.
func newProblem(code, detail string, fields ...api.FieldError) *problem {
	kind := problemKinds[code]
	if detail == "" {
		detail = cmp.Or(kind.defaultDetail, operate.Explanation(code))
	}
	return &problem{api.Problem{
		Type:       webhook.ProblemTypePrefix + code,
		Title:      kind.title,
		Status:     kind.status,
		Detail:     detail,
		Code:       code,
		Retryable:  kind.retryAfterSeconds > 0,
		RetryAfter: kind.retryAfterSeconds,
		Errors:     fields,
	}}
}

// GetStatus implements huma.StatusError.
func (p *problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *problem) GetHeaders() http.Header {
	if p.RetryAfter == 0 {
		return nil
	}
	return http.Header{"Retry-After": {strconv.FormatInt(p.RetryAfter, 10)}}
}

// ContentType implements huma.ContentTypeFilter.
func (*problem) ContentType(string) string { return "application/problem+json" }

func (p *problem) write(w http.ResponseWriter) {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, numbers and booleans always marshal
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	maps.Copy(w.Header(), p.GetHeaders())
	w.WriteHeader(p.Status)
	_, _ = w.Write(text)
}

// problemOf converts an error of a call to the problem that the client receives.
func problemOf(err error) *problem {
	if known, ok := errors.AsType[*problem](err); ok {
		return known
	}
	failed, ok := errors.AsType[*operate.Error](err)
	if !ok {
		return newProblem(api.CodeInternal, "")
	}
	if len(failed.Fields) > 0 {
		return invalidFieldsProblem(failed.Fields...)
	}
	p := newProblem(failed.Code, failed.Detail)
	if failed.MustNotRepeat {
		p.Retryable, p.RetryAfter = false, 0
	}
	return p
}

func invalidFieldsProblem(fields ...api.FieldError) *problem {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = f.Field + ": " + f.Problem
	}
	return newProblem(api.CodeInvalid, strings.Join(texts, "; "), fields...)
}

// setUpHuma sets huma's global variables, which apply to all APIs of a process. It must be called
// before the first call is registered.
var setUpHuma = sync.OnceFunc(func() {
	huma.ErrorFormatter = sprintfNoExponent
	huma.ValidateStrictCasing = true // a member AccountID is unknown: only accountId is valid
	huma.NewErrorWithContext = problemOfHumaError
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return problemOfHumaError(nil, status, message, errs...)
	}
})

// sprintfNoExponent is like fmt.Sprintf, but formats float64 values without an exponent: 1000000,
// not 1e+06.
func sprintfNoExponent(format string, args ...any) string {
	for i, arg := range args {
		if number, ok := arg.(float64); ok {
			args[i] = strconv.FormatFloat(number, 'f', -1, 64)
		}
	}
	return fmt.Sprintf(format, args...)
}

// problemOfHumaError converts huma's error about an invalid request to a problem. For errors of
// handlers, see problemOf.
func problemOfHumaError(
	ctx huma.Context, status int, message string, errs ...error,
) huma.StatusError {
	var p *problem
	if status == http.StatusRequestEntityTooLarge {
		p = newProblem(api.CodeBodyTooLarge, "")
	} else {
		var fields []api.FieldError
		for _, err := range errs {
			fields = append(fields, fieldErrorOf(err))
		}
		if len(fields) == 0 {
			fields = []api.FieldError{{Field: "body", Problem: message}}
		}
		p = invalidFieldsProblem(fields...)
	}
	if ctx != nil {
		logProblem(ctx.Context(), p, nil)
	}
	return p
}

// fieldErrorOf converts huma's error about a field to the form that the client receives. The result
// names the field without a prefix such as "body.", and omits the field's value, which may be
// secret. Three of huma's messages are replaced with clearer ones. They are recognized by their
// texts, because huma's errors have no codes. If a new version of huma changes one of these texts,
// the client gets the new text unchanged.
func fieldErrorOf(err error) api.FieldError {
	var detailer huma.ErrorDetailer
	if !errors.As(err, &detailer) {
		return api.FieldError{Field: "body", Problem: "cannot be read"}
	}
	detail := detailer.ErrorDetail()
	location, what := detail.Location, detail.Message
	if name, missing := missingProperty(what); missing {
		location, what = location+"."+name, "is required"
	}
	if strings.HasPrefix(location, "query.") && what == "unknown query parameter" {
		what = "is no parameter of this call; " + api.PathPrefix + "/openapi.json lists them"
	}
	if strings.HasPrefix(what, "invalid date/time") { // followed by the layout in Go's notation
		what = "must be a time like 2026-01-31T12:00:00Z; a + in it is %2B in a URL"
	}
	for _, place := range []string{"body.", "query.", "path.", "header."} {
		if field, ok := strings.CutPrefix(location, place); ok {
			location = field
			break
		}
	}
	return api.FieldError{Field: location, Problem: what}
}

// missingProperty extracts the name of the property from huma's message about a missing required
// property. For any other message, missing is false.
func missingProperty(message string) (name string, missing bool) {
	before, after, _ := strings.Cut(validation.MsgExpectedRequiredProperty, "%s")
	rest, begins := strings.CutPrefix(message, before)
	name, ends := strings.CutSuffix(rest, after)
	return name, begins && ends
}
