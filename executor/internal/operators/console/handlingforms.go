package console

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// removeButtonValue is the value of the button that removes a setting of a trigger node.
const removeButtonValue = "take-away"

// completeNodeForm completes f, the form for one setting of a trigger node. valuesOf converts the
// node's settings to the values of the form's fields. set changes the settings to the posted
// values. saved is the message after the setting was saved, and gone is the message after it was
// removed.
func (c *Console) completeNodeForm(
	f form, valuesOf func(*api.TriggerSettings) map[string]string,
	set func(*postedForm, *api.TriggerSettings) error, saved, gone string,
) *form {
	f.operation, f.showProblemAsMessage, f.savesUnedited = "PatchTrigger", true, true
	f.maxBytes = 2 * maxFilterFormBytes // the form contains the text twice: as shown and as edited
	f.pageURL, f.showPage = workflowPageURL, c.showWorkflow
	f.save = func(r *http.Request, p *postedForm) (string, error) {
		done := saved
		if p.values["do"] == removeButtonValue {
			done = gone
			for _, field := range f.settings[0].fields {
				p.values[field] = ""
			}
		}
		_, err := c.Operate.PatchTrigger(r.Context(), signin.Caller(r.Context()),
			r.PathValue("id"), r.URL.Query().Get("node"), func(s *api.TriggerSettings) error {
				if err := p.checkEditConflict(valuesOf(s)); err != nil {
					return err
				}
				return set(p, s)
			})
		return done, err
	}
	return &f
}

// filterOrderAndAnswerForms returns the views of the forms for a trigger node's filter, order key
// and answer.
func filterOrderAndAnswerForms(
	ctx context.Context, s *api.TriggerSettings,
) (filter, order, answer formView) {
	return newFormView(ctx, "filter", filterFields(s)),
		newFormView(ctx, "order", orderKeyFields(s)),
		newFormView(ctx, "answer", answerFields(s))
}

func filterFields(s *api.TriggerSettings) map[string]string {
	if len(filterConditions(s.Filter)) == 0 {
		return map[string]string{"filter": ""}
	}
	return map[string]string{"filter": string(s.Filter)}
}

func (c *Console) filterForm() *form {
	return c.completeNodeForm(form{
		name:     "filter",
		settings: []setting{{"filter", []string{"filter"}, quoteValuesOrNothing}},
	}, filterFields, func(p *postedForm, s *api.TriggerSettings) error {
		if s.Filter = nil; strings.TrimSpace(p.values["filter"]) != "" {
			s.Filter = json.RawMessage(p.values["filter"])
		}
		return nil
	}, "The filter is saved: it holds from the next request on.",
		"The filter is taken away: every request starts an execution.")
}

func orderKeyFields(s *api.TriggerSettings) map[string]string {
	return map[string]string{"place": s.OrderKey}
}

func (c *Console) orderKeyForm() *form {
	return c.completeNodeForm(form{
		name:           "order",
		fieldByAPIName: map[string]string{"orderKey": "place"},
		settings:       []setting{{"order key", []string{"place"}, quoteValuesOrNothing}},
	}, orderKeyFields, func(p *postedForm, s *api.TriggerSettings) error {
		s.OrderKey = strings.TrimSpace(p.values["place"])
		return nil
	}, "The order key is saved: it holds from the next request on.",
		"The order key is taken away: executions have no order.")
}

func answerFields(s *api.TriggerSettings) map[string]string {
	fields := map[string]string{"wait": "", "raw": ""}
	if s.Answer != nil {
		fields["wait"] = strconv.FormatInt(s.Answer.WaitSeconds, 10)
		if s.Answer.Raw {
			fields["raw"] = "on"
		}
	}
	return fields
}

func (c *Console) answerForm() *form {
	return c.completeNodeForm(form{
		name:           "answer",
		fieldByAPIName: map[string]string{"answer.waitSeconds": "wait"},
		settings: []setting{{"answer", []string{"wait", "raw"}, func(values []string) string {
			if values[0] == "" {
				return "nothing"
			}
			text := "“" + values[0] + " seconds"
			if values[1] != "" {
				text += ", raw"
			}
			return text + "”"
		}}},
	}, answerFields, func(p *postedForm, s *api.TriggerSettings) error {
		if p.values["wait"] == "" && p.values["raw"] == "" {
			s.Answer = nil
			return nil
		}
		seconds, err := strconv.ParseInt(p.values["wait"], 10, 64)
		if err != nil {
			return invalidField("wait", "must be a whole number")
		}
		s.Answer = &api.Answer{WaitSeconds: seconds, Raw: p.values["raw"] != ""}
		return nil
	}, "The answer is saved: it holds from the next request on.",
		"The answer does not wait any more.")
}

// quoteValuesOrNothing is like quoteValues, but returns "nothing" if the setting's value is empty.
func quoteValuesOrNothing(values []string) string {
	if values[0] == "" {
		return "nothing"
	}
	return quoteValues(values)
}
