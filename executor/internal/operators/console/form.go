package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// form describes a form of a page. The browser posts each form to a different address. If the
// change succeeds, the response is a redirect to the page, which then shows a message once. There
// is one exception: if the change has created something that is shown only once, such as a key's
// secret, the response is the page itself. If the change fails, the response is the page with the
// error and with the values that the operator typed.
//
// With JavaScript (post.js), the browser stays on the page and shows the response there. After
// success, the script receives a savedResponse instead of a redirect.
type form struct {
	name string // distinguishes the forms of a page that concern the same object
	// idPathParams lists the path parameters that hold the object's IDs. The IDs distinguish the
	// forms of a page that shows several objects. On other pages, idPathParams is nil.
	idPathParams []string
	// operation is the name of the operation that makes the change. It determines the role that the
	// caller needs.
	operation string
	// settings lists the settings that the form shows and changes. They are checked for conflicts
	// with other operators' changes. A form can also have fields that belong to no setting, such as
	// commands and the values of a new object. These cannot overwrite somebody else's change.
	settings []setting
	// savesUnedited means that saving the form stores all of its settings, even those that the
	// operator has not edited. Settings that were not edited can then conflict with somebody else's
	// change, too.
	savesUnedited bool
	// fieldByAPIName maps field names in errors of the operators' API to field names of the form.
	// Names that are the same need no entry.
	fieldByAPIName map[string]string
	// apiTermReplacer replaces terms of the API in error messages with the form's terms. nil
	// replaces nothing.
	apiTermReplacer *strings.Replacer
	// labelByAPIName maps fields of the operators' API to labels. If showProblemAsMessage is set,
	// the form's message begins with the label of the invalid field.
	labelByAPIName map[string]string
	// showProblemAsMessage means that the problem with an invalid field is shown not only beside
	// the field, but also as the form's message. It is set if the form has only one field to fill
	// in, or if the operation reports only one problem at a time.
	showProblemAsMessage bool
	maxBytes             int64                      // maximum size; 0 means defaultMaxFormBytes
	pageURL              func(*http.Request) string // returns the path and query of the page
	showPage             http.HandlerFunc           // responds with the page
	// save makes the change. It returns a message that says what was done.
	save func(*http.Request, *postedForm) (string, error)
}

// setting is a value that a form shows and changes. For each of its fields, the form has a hidden
// field named shownFieldPrefix+name, which holds the value that the page showed. The hidden fields
// reveal whether the operator or somebody else has changed the setting since.
type setting struct {
	noun   string   // noun for the setting in messages
	fields []string // names of its form fields, in the order of describe's values
	// describe returns the setting in words, given the values of its fields in order.
	describe func(values []string) string
}

const shownFieldPrefix = "shown."

// postedForm is a form that was posted, with the result that the page has to show. The zero value
// is a form that was not posted.
type postedForm struct {
	form        *form
	name        string     // the form's name on its page, as returned by formName
	allValues   url.Values // all values that were posted; values has the first of each field
	redirectURL string     // URL to redirect to after success; "" means the form's own page
	// startedExecutionID is the ID of the execution that the form has started, or "". The browser
	// then continues on the page of this execution.
	startedExecutionID string
	values             map[string]string // posted values that the page shows again
	responseStatus     int               // status of the response after a failure
	newValues          map[string]string // new values of fields, for a page that stays open
	// repostValues holds the field values with which a script must post the form again. nil means
	// that the script must not post the form again.
	repostValues map[string]string
	// valuesStored means that the values in the form were stored, although a later step of the
	// form has failed.
	valuesStored bool

	Code              string            // code of the failure; "" means that there was none
	Message           string            // what the form says about the failure
	problems          map[string]string // what is wrong with each value, by form field
	conflictingValues map[string]string // all current values, if they conflict with posted ones
	created           any               // what the change created and is shown only once
	// dialogData is the template data of the confirmation dialog, or nil if no confirmation is
	// needed.
	dialogData any
}

type postedFormContextKey struct{}

// formView is the template data of a form: its current values and, if it was just posted, the post
// and its result. The zero value is a form without values.
type formView struct {
	postedForm
	current map[string]string // current values by field
}

// formName returns the name of a form: the IDs of the object that the form concerns and the given
// name, joined by colons. It is unique in its page, because IDs do not contain a colon.
func formName(name string, ids ...string) string {
	return strings.Join(append(slices.Clone(ids), name), ":")
}

// newFormView returns the view of the form with the given name. If this form was just posted, the
// view contains the post and its result.
func newFormView(ctx context.Context, name string, current map[string]string) formView {
	view := formView{current: current}
	if p := postedFormFromContext(ctx); p != nil && p.name == name {
		view.postedForm = *p
	}
	return view
}

// postedFormFromContext returns the form that was posted with the request, so that the page can
// show the result or the failure. It returns nil if no form was posted.
func postedFormFromContext(ctx context.Context) *postedForm {
	p, _ := ctx.Value(postedFormContextKey{}).(*postedForm)
	return p
}

// Value returns the content of a field: the posted value if there is one, or the current value.
func (v formView) Value(field string) string {
	if value, ok := v.values[field]; ok {
		return value
	}
	return v.current[field]
}

// ShownValue returns the content of the hidden field that records which value of a field the page
// showed.
func (v formView) ShownValue(field string) string {
	if value, ok := v.values[shownFieldPrefix+field]; ok {
		return value
	}
	return v.current[field]
}

// HasValue reports whether to select the given value in a field with several values, such as a
// group of checkboxes. After a failed post, it returns whether the value was posted. Otherwise, it
// returns current, which says whether the stored setting contains the value.
func (v formView) HasValue(field, value string, current bool) bool {
	if v.Code == "" {
		return current
	}
	return slices.Contains(v.allValues[field], value)
}

// Checked reports whether a checkbox is checked. Browsers do not post unchecked checkboxes. If the
// hidden field of a checkbox was posted but the checkbox itself was not, the operator has therefore
// unchecked it.
func (v formView) Checked(field string) bool {
	_, edited := v.values[shownFieldPrefix+field]
	return edited && v.values[field] != "" || !edited && v.current[field] != ""
}

// Stored reports whether the values in the form were stored, although a later step of the form has
// failed.
func (v formView) Stored() bool { return v.valuesStored }

// Problem returns a description of the problem with a field, or "" if there is none.
func (v formView) Problem(field string) string { return v.problems[field] }

// Invalid returns the HTML attributes that mark a field as invalid, or "" if it has no problem. Of
// the invalid fields, only the one whose name sorts first gets autofocus.
func (v formView) Invalid(field string) template.HTMLAttr {
	switch {
	case v.problems[field] == "":
		return ""
	case field == slices.Min(slices.Collect(maps.Keys(v.problems))):
		return `aria-invalid="true" autofocus`
	default:
		return `aria-invalid="true"`
	}
}

// formMessage is a text to show in a form, with the ID of the HTML element that shows it.
type formMessage struct {
	ID, Text string
	Focus    bool // the browser moves the focus to it
}

// MessageFor returns the message for the HTML element with the given ID: the problem with the given
// field or, if field is "", the form's message. The form's message gets the focus unless a field
// has a problem or a confirmation dialog is open.
func (v formView) MessageFor(id, field string) formMessage {
	if field == "" {
		focus := v.Message != "" && len(v.problems) == 0 && v.dialogData == nil
		return formMessage{id, v.Message, focus}
	}
	return formMessage{ID: id, Text: v.Problem(field)}
}

// forms returns all forms, keyed by the path to which they are posted.
func (c *Console) forms() map[string]*form {
	return map[string]*form{
		"/workflows/{id}/settings":                   c.workflowSettingsForm(),
		"/workflows/{id}/switch":                     c.workflowActivationForm(),
		"/workflows/{id}/delete":                     c.deleteWorkflowForm(),
		"/workflows/{id}/filter":                     c.filterForm(),
		"/workflows/{id}/order":                      c.orderKeyForm(),
		"/workflows/{id}/answer":                     c.answerForm(),
		"/workflows/{id}/rotate":                     c.rotateTokenForm(),
		"/workflows/{id}/sample":                     c.saveSampleForm(),
		"/workflows/{id}/send-test":                  c.sendTestForm(),
		"/workflows/{id}/rerun":                      c.rerunTriggerForm(),
		"/workflows/{id}/sender":                     c.senderForm(),
		"/workflows/{id}/new-secret":                 c.newSecretForm(),
		"/workflows/{id}/remove-sender":              c.removeSenderForm(),
		"/workflows/{id}/secrets/{secret}/end":       c.endSecretForm(),
		"/new-workflow/create":                       c.newWorkflowForm(),
		"/executions/{id}/cancel":                    c.cancelExecutionForm(),
		"/executions/{id}/requeue":                   c.requeueExecutionForm(),
		"/executions/{id}/replay":                    c.replayExecutionForm(),
		"/executions/{id}/rerun":                     c.rerunExecutionForm(),
		"/dead-letters/{id}/requeue":                 c.requeueDeadLetterForm(),
		"/dead-letters/requeue":                      c.requeueDeadLettersForm(),
		"/dead-letters/dismiss":                      c.dismissDeadLettersForm(),
		"/matching-executions/replay":                c.replayMatchingExecutionsForm(),
		"/matching-executions/cancel":                c.cancelMatchingExecutionsForm(),
		"/workflows/{id}/matching-executions/replay": c.replayMatchingExecutionsForm(),
		"/workflows/{id}/matching-executions/cancel": c.cancelMatchingExecutionsForm(),
		"/accounts/{id}/plan":                        c.changePlanForm(),
		"/accounts/{id}/delete":                      c.deleteAccountForm(),
		"/accounts/{id}/events":                      c.accountEventsForm(),
		"/new-account":                               c.newAccountForm(),
		"/queues/{queue}/pause":                      c.pauseQueueForm(),
		"/queues/{queue}/stream":                     c.ownStreamForm(),
		"/queues/{queue}/drop-stream":                c.moveToSharedStreamForm(),
		"/queues/{queue}/groups/{group}":             c.groupLimitForm(),
		"/new-key":                                   c.newKeyForm(),
		"/keys/{id}/revoke":                          c.revokeKeyForm(),
	}
}

// routeForms adds the handlers of the forms. A GET request for a form's address is redirected to
// the page with the form.
func (c *Console) routeForms(mux *http.ServeMux) {
	for path, f := range c.forms() {
		mux.HandleFunc(path, c.requireSession(func(w http.ResponseWriter, r *http.Request) {
			c.renderMethodNotAllowed(w, r, "GET, HEAD, POST")
		}))
		mux.HandleFunc("POST "+path, c.requireSession(c.postHandler(f)))
		mux.HandleFunc("GET "+path, c.requireSession(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, f.pageURL(r), http.StatusSeeOther)
		}))
	}
}

// postHandler returns the handler to which a form is posted. The handler checks the caller's role,
// saves the form, and responds with a redirect or with the page.
func (c *Console) postHandler(f *form) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		least, _ := operate.RoleOfOperation(f.operation)
		if err := signin.Caller(r.Context()).RequireRole(least); err != nil {
			c.renderCallError(w, r, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, cmp.Or(f.maxBytes, defaultMaxFormBytes))
		if err := r.ParseForm(); err != nil {
			c.renderUnreadableForm(w, r, err)
			return
		}
		p := &postedForm{form: f, allValues: r.PostForm, values: firstValues(r.PostForm)}
		var ids []string
		for _, name := range f.idPathParams {
			ids = append(ids, r.PathValue(name))
		}
		p.name = formName(f.name, ids...)
		done, err := "", p.checkComplete()
		if err == nil {
			done, err = f.save(r, p)
		}
		switch {
		case err == nil && p.created != nil:
			p.name, p.responseStatus = "", http.StatusOK
			f.showPage(w, r.WithContext(context.WithValue(r.Context(), postedFormContextKey{}, p)))
		case err == nil && acceptsJSON(r):
			page := cmp.Or(p.redirectURL, f.pageURL(r))
			respondSaved(w, savedResponse{
				page, done, p.startedExecutionID, p.newValues,
				p.repostValues,
			})
		case err == nil:
			c.SignIn.SetNotice(w, r, done)
			http.Redirect(w, r, cmp.Or(p.redirectURL, f.pageURL(r)), http.StatusSeeOther)
		case p.recordFailure(err):
			if p.responseStatus == http.StatusServiceUnavailable {
				noteInLogEvent(r, "", err)
			}
			f.showPage(w, r.WithContext(context.WithValue(r.Context(), postedFormContextKey{}, p)))
		default:
			c.renderCallError(w, r, err)
		}
	}
}

// renderUnreadableForm responds with the error page for a form that cannot be read.
func (c *Console) renderUnreadableForm(w http.ResponseWriter, r *http.Request, err error) {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		c.renderError(w, r, http.StatusRequestEntityTooLarge, "The form is too large",
			fmt.Sprintf("It may have %d bytes.", tooLarge.Limit))
		return
	}
	c.renderError(w, r, http.StatusBadRequest, "The form cannot be read",
		"The request is damaged. Load the page again, and repeat the change.")
}

// savedResponse is the response to a form that the page's script has posted, if the change was
// saved.
type savedResponse struct {
	Page string `json:"page"` // path and query of the page that shows the result
	Done string `json:"done"` // says what was done
	// StartedExecutionID is the ID of the execution that was started, or "".
	StartedExecutionID string `json:"started,omitempty"`
	// NewValues holds the new values of the fields that have changed, for a page that stays open.
	NewValues map[string]string `json:"fields,omitempty"`
	// RepostValues is set if more items may remain to be changed. The script then posts the form
	// again, with these values in its fields. In this case, Done says how many items have been
	// changed by all posts until now.
	RepostValues map[string]string `json:"again,omitempty"`
}

// acceptsJSON reports whether the request was sent by a script, which accepts only JSON.
func acceptsJSON(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), "application/json")
}

func respondSaved(w http.ResponseWriter, result savedResponse) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result)
}

// firstValues returns the first value of each posted field. Browsers post line breaks as CRLF;
// firstValues converts them to LF.
func firstValues(posted url.Values) map[string]string {
	values := make(map[string]string, len(posted))
	for name := range posted {
		values[name] = strings.ReplaceAll(posted.Get(name), "\r\n", "\n")
	}
	return values
}

// checkComplete returns an error if the post lacks one of the hidden fields that hold the values
// shown by the page. Without these values, the form might overwrite changes that the operator has
// not seen.
func (p *postedForm) checkComplete() error {
	for _, s := range p.form.settings {
		for _, field := range s.fields {
			if _, ok := p.values[shownFieldPrefix+field]; !ok {
				return incompleteFormError()
			}
		}
	}
	return nil
}

func incompleteFormError() error {
	return &operate.Error{
		Code: api.CodeInvalid, Detail: "The form is not complete. Load the page again.",
	}
}

// isEdited reports whether the operator has changed any of the given fields.
func (p *postedForm) isEdited(fields ...string) bool {
	return slices.ContainsFunc(fields, func(field string) bool {
		return !sameValue(p.values[field], p.values[shownFieldPrefix+field])
	})
}

// sameValue reports whether two values of a field look the same to an operator. It ignores line
// breaks, which browsers remove from single-line fields, and white space around the value.
func sameValue(a, b string) bool {
	plain := func(value string) string { return strings.TrimSpace(lineBreakRemover.Replace(value)) }
	return plain(a) == plain(b)
}

var lineBreakRemover = strings.NewReplacer("\r", "", "\n", "")

// changesSetting reports whether saving the form changes the setting s, because the operator has
// edited s or because the form saves all of its settings.
func (p *postedForm) changesSetting(s setting) bool {
	return p.form.savesUnedited ||
		p.isEdited(s.fields...)
}

// checkEditConflict returns an error with api.CodeChangedSince if the operator and somebody else
// have changed the same setting to different values. current holds the current values of the fields
// of all settings. Call checkEditConflict as part of the change, so that current is still up to
// date when the change is stored.
func (p *postedForm) checkEditConflict(current map[string]string) error {
	var theirs []string
	for _, s := range p.form.settings {
		differs := func(prefix string) bool {
			return slices.ContainsFunc(s.fields, func(field string) bool {
				return !sameValue(p.values[prefix+field], current[field])
			})
		}
		if p.changesSetting(s) && differs(shownFieldPrefix) && differs("") {
			values := make([]string, len(s.fields))
			for i, field := range s.fields {
				values[i] = current[field]
			}
			theirs = append(theirs, "the "+s.noun+" to "+s.describe(values))
		}
	}
	if p.conflictingValues = nil; len(theirs) == 0 {
		return nil
	}
	p.conflictingValues = current
	return operate.NewChangedSinceError("Not saved: somebody else has changed " +
		strings.Join(theirs, " and ") + " since you opened the page. Your changes are still in " +
		"the form: save again to overwrite theirs, or reload the page to keep theirs.")
}

// quoteValues describes a setting by its values, in quotation marks.
func quoteValues(values []string) string { return "“" + strings.Join(values, " ") + "”" }

// codeConfirmationRequired is the error code of a form that was not saved because the operator must
// first confirm the change.
const codeConfirmationRequired = "confirm"

// requireConfirmation returns nil if the operator has confirmed the change. If not, it returns an
// error that makes the page ask for confirmation. The page passes dialogData to its dialog, whose
// button posts the same form again with the confirmation.
func (p *postedForm) requireConfirmation(dialogData any) error {
	if p.values["confirmed"] == "yes" {
		return nil
	}
	p.dialogData = dialogData
	return &operate.Error{Code: codeConfirmationRequired, Detail: "Not done yet: confirm it."}
}

// confirmDialogData returns the template data of the page's confirmation dialog. It returns nil if
// the page shows no such dialog, or if the data is not of type *T.
func confirmDialogData[T any](ctx context.Context) *T {
	if p := postedFormFromContext(ctx); p != nil {
		question, _ := p.dialogData.(*T)
		return question
	}
	return nil
}

// createdObject returns the object that a change has created, so that the page can show it once. It
// returns nil if the change has created no object of type T.
func createdObject[T any](ctx context.Context) *T {
	if p := postedFormFromContext(ctx); p != nil {
		made, _ := p.created.(*T)
		return made
	}
	return nil
}

// recordFailure records why the form was not saved, so that the page can show it in the form. It
// returns false for an error that needs an error page instead, such as a missing permission or an
// internal error.
func (p *postedForm) recordFailure(err error) bool {
	refused, ok := errors.AsType[*operate.Error](err)
	if !ok {
		return false
	}
	switch refused.Code {
	case api.CodeInvalid:
		p.responseStatus = http.StatusUnprocessableEntity
	case api.CodeUnavailable, api.CodeNotConfirmed:
		p.responseStatus = http.StatusServiceUnavailable
	case api.CodeNotFound, api.CodeUnauthorized, api.CodeForbidden, api.CodeInternal:
		return false
	default:
		p.responseStatus = http.StatusConflict
	}
	if refused.Code != api.CodeChangedSince {
		p.conflictingValues = nil // from an earlier conflict, which the page does not show now
	}
	p.Code, p.Message = refused.Code, p.form.replaceAPITerms(refused.Text())
	p.setProblems(refused.Fields)
	p.discardUneditedValues()
	return true
}

// nodeFieldPrefixPattern matches the prefix of a trigger node's field names in errors, such as
// "triggers[0].".
var nodeFieldPrefixPattern = regexp.MustCompile(`^triggers\[\d+\]\.`)

// setProblems assigns each error about an API field to the corresponding field of the form. If the
// form has no such field, the error becomes part of the form's message.
func (p *postedForm) setProblems(invalid []api.FieldError) {
	p.problems = map[string]string{}
	for _, problem := range invalid {
		name := nodeFieldPrefixPattern.ReplaceAllString(problem.Field, "")
		list, _, _ := strings.Cut(name, "[")
		field, mapped := p.form.fieldByAPIName[name]
		if !mapped {
			field = cmp.Or(p.form.fieldByAPIName[list], name)
		}
		if _, ok := p.values[field]; ok {
			p.problems[field] = p.form.replaceAPITerms(problem.Problem)
			if p.form.showProblemAsMessage {
				p.Message = p.problems[field]
				if label := p.form.labelByAPIName[list]; label != "" {
					p.Message = label + ": " + p.Message
				}
			}
			continue
		}
		p.Message += " " + problem.Field + ": " + p.form.replaceAPITerms(problem.Problem) + "."
	}
	if p.Message = strings.TrimSpace(p.Message); p.Message == "" {
		p.Message = "Not saved: see what is marked."
	}
}

// replaceAPITerms returns an operation's message with the API's terms replaced by those of the
// form.
func (f *form) replaceAPITerms(message string) string {
	if f.apiTermReplacer == nil {
		return message
	}
	return f.apiTermReplacer.Replace(message)
}

// discardUneditedValues prepares the posted values for the page that shows the form again after a
// failure. For each setting that saving the form would not change, it deletes the posted values, so
// that the page shows the stored ones. After a conflict, it also updates the hidden fields of all
// other settings to the stored values. The page now tells the operator about these values, so the
// operator may overwrite them by saving the form again.
func (p *postedForm) discardUneditedValues() {
	for _, s := range p.form.settings {
		edited := p.changesSetting(s)
		for _, field := range s.fields {
			if !edited {
				delete(p.values, field)
				delete(p.values, shownFieldPrefix+field)
			} else if p.conflictingValues != nil {
				p.values[shownFieldPrefix+field] = p.conflictingValues[field]
			}
		}
	}
}
