package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

const setTokenHint = "export HOOKSTART_ADMIN_TOKEN=… with the executor's token, or a key; " +
	"hookstart-local shows it at its start and keeps it in .hookstart/admin-token; a unit of the " +
	"package has it in /etc/hookstart/executor.env or local.env"

// usageError means that the command line is invalid. The exit code is then 2 instead of 1.
type usageError struct{ text, hint string }

func (e *usageError) Error() string { return e.text }

// hintError is an error with a hint that tells the user what to do.
type hintError struct {
	error
	hint string
}

func (e *hintError) Unwrap() error { return e.error }

func isNotFound(err error) bool { return api.IsCode(err, api.CodeNotFound) }

// toUsageError converts an error of kong into a usageError whose hint names the help of the verb.
func toUsageError(err error) error {
	verb := "hookstart"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		if selected := parse.Context.Selected(); selected != nil {
			verb = selected.FullPath()
		}
	}
	if strings.Contains(err.Error(), "unexpected argument create") {
		return &usageError{
			err.Error(),
			verb + " put creates one, or changes one that is there: " + verb + " put --help",
		}
	}
	// kong's list of allowed values begins with "", the default, which means any value. Remove it,
	// because it would only confuse users.
	text := strings.Replace(err.Error(), `must be one of "",`, "must be one of ", 1)
	return &usageError{text, verb + " --help"}
}

// printError prints the error on one line and the hint on the next, and returns the exit code.
func printError(to io.Writer, err error) (code int) {
	hint, code := "", 1
	if usage, ok := errors.AsType[*usageError](err); ok {
		hint, code = usage.hint, 2
	}
	if hinted, ok := errors.AsType[*hintError](err); ok {
		hint = hinted.hint
	}
	// If writing to stderr fails, the error cannot be reported.
	_, _ = fmt.Fprintln(to, "hookstart: "+sanitizeLine(errorMessage(err)))
	if hint != "" {
		_, _ = fmt.Fprintln(to, "hint: "+sanitizeLine(hint))
	}
	return code
}

// errorMessage returns an error's message. If it wraps an api.Problem, errorMessage adds the errors
// of the individual fields to the problem's message.
func errorMessage(err error) string {
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		return err.Error()
	}
	text := p.Error()
	for _, field := range p.Errors {
		if !strings.Contains(text, field.Problem) {
			text += " " + field.Field + ": " + field.Problem + "."
		}
	}
	return strings.Replace(err.Error(), p.Error(), text, 1)
}

// withHint adds a hint that fits the error and the command, unless the error already has one or no
// hint is known. If ctx is done because the user has interrupted the command, it returns the error
// "interrupted" instead.
func (f *commandLine) withHint(ctx context.Context, command string, err error) error {
	if _, ok := errors.AsType[*hintError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	elsewhere := "is the executor running at " + f.APIURL +
		"? --api-url or HOOKSTART_API_URL names another address"
	_, ofAPI := errors.AsType[*apiclient.ConnectionError](err)
	p, ok := errors.AsType[*api.Problem](err)
	unknownAuthority := strings.Contains(err.Error(), "x509: ")
	switch {
	case ofAPI && unknownAuthority:
		return &hintError{
			err,
			"--api-ca or HOOKSTART_API_CA names the file of the certificate authority of " +
				f.APIURL,
		}
	case ofAPI:
		return &hintError{err, elsewhere}
	// The error is neither a *ConnectionError nor a response of the API, so it is from the
	// connection to NATS.
	case !ok && unknownAuthority:
		return &hintError{
			err,
			"--nats-ca or HOOKSTART_NATS_CA names the file of the certificate authority of the " +
				"NATS servers",
		}
	case !ok:
		return err
	case p.Status == http.StatusUnauthorized:
		return &hintError{err, setTokenHint}
	case p.Code == api.CodeNotFound && strings.HasSuffix(command, " list"):
		// Every executor serves all lists of the API, so a server that does not find one of them is
		// not an executor.
		return &hintError{err, elsewhere}
	}
	if hint := problemHint(p, command); hint != "" {
		return &hintError{err, hint}
	}
	return err
}

// problemHint returns a hint for a problem that the API returned for the given command, or "" if
// there is none.
func problemHint(p *api.Problem, command string) string {
	kind, _, _ := strings.Cut(command, " ")
	if kind == "trigger" || kind == "sender" {
		kind = "workflow"
	}
	switch {
	case p.Code == api.CodeNotFound:
		return "hookstart " + kind + " list"
	case p.Code == api.CodeForbidden:
		return "hookstart whoami shows what this key may do; an admin can make another one: " +
			"hookstart key create --help"
	case p.Code == api.CodeWebhooksNotInPlan:
		return "hookstart plan list; hookstart account put ACCOUNT --plan PLAN changes it"
	case p.Code == api.CodeSecretsKeyMissing:
		return "hookstart admin secrets-key makes a key; --secrets-key-file gives it to " +
			"executors and ingresses"
	case p.Code == api.CodeChangedSince:
		return "somebody has changed it at the same moment: look at it, and run this again"
	case p.Code == api.CodeInvalid:
		return helpCommand(command)
	case p.Retryable && p.RetryAfter > 0:
		return fmt.Sprintf("run it again in %d s", p.RetryAfter)
	default:
		return ""
	}
}

// helpCommand returns the command line that prints a verb's help. It drops the arguments, which
// kong includes in a command's name.
func helpCommand(command string) string {
	words := strings.Fields(command)
	return "hookstart " + strings.Join(words[:min(2, len(words))], " ") + " --help"
}

// planLimitHint returns a hint for an account whose plan allows no more active workflows.
func planLimitHint(accountID string) string {
	return fmt.Sprintf("hookstart workflow list --account %s shows which are active: deactivate "+
		"one, or change the plan: hookstart account put %s --plan pro", accountID, accountID)
}
