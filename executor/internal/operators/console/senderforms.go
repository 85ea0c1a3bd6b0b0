package console

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// maxSenderFormBytes is the maximum size, in bytes, of a form with a secret. A secret can have up
// to 4 KiB, and URL encoding can triple that.
const maxSenderFormBytes = 32 << 10

// presetFields is the template data of the part of the sender form that depends on the preset.
type presetFields struct {
	WorkflowID, NodeID string
	Preset             api.SenderPreset // the zero value means that none was chosen
	Unknown            bool             // no preset's ID or title contains the typed name
	SenderHasPreset    bool             // the node's sender has this preset
	Form               formView
}

// FragmentURL returns the URL from which sender.js loads this part of the form again after the
// operator has chosen another preset.
func (f presetFields) FragmentURL() string {
	return "/fragments/sender?" +
		url.Values{"workflow": {f.WorkflowID}, "node": {f.NodeID}}.Encode()
}

// settingFieldPrefix is the prefix of the fields for the settings of a preset.
const settingFieldPrefix = "settings."

// presetInput is the template data of the field for a setting of a preset.
type presetInput struct {
	api.PresetSetting
	Field string
	Form  formView
}

// Value returns the content of the field. If the setting has a fixed list of values, an empty field
// shows the setting's default.
func (i presetInput) Value() string {
	if i.Values == nil {
		return i.Form.Value(i.Field)
	}
	return cmp.Or(i.Form.Value(i.Field), i.Default)
}

// Inputs returns the fields of the preset's required settings if required is true, and the fields
// of its optional settings otherwise. If the sender already has a required secret, the field of
// that secret may stay empty.
func (f presetFields) Inputs(required bool) (inputs []presetInput) {
	for _, s := range f.Preset.Settings {
		if s.Required == required {
			s.Required = required && (!f.SenderHasPreset || !s.Secret)
			inputs = append(inputs, presetInput{s, settingFieldPrefix + s.Name, f.Form})
		}
	}
	return inputs
}

// Refused reports whether the value of an optional setting was refused.
func (f presetFields) Refused() bool {
	return slices.ContainsFunc(f.Inputs(false), func(i presetInput) bool {
		return f.Form.Problem(i.Field) != ""
	})
}

// maxPresets is the maximum number of presets that a form offers.
const maxPresets = 1000

// senderPresets returns the presets that can be selected in a form.
func (c *Console) senderPresets(ctx context.Context) ([]api.SenderPreset, error) {
	presets, err := c.Operate.SenderPresets(ctx, signin.Caller(ctx), "",
		operate.PageOptions{Limit: maxPresets})
	return presets.Items, err
}

// findPreset returns the preset whose ID, title or alias is the given name, ignoring case. If there
// is no such preset, it returns the zero value. partial reports whether the name is at least a part
// of a preset's ID or title, because the operator may still be typing.
func findPreset(
	presets []api.SenderPreset, name string,
) (found api.SenderPreset, partial bool) {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, p := range presets {
		title := strings.ToLower(p.Title)
		if name == p.ID || name == title || slices.Contains(p.Aliases, name) {
			return p, true
		}
		partial = partial || strings.Contains(p.ID, name) || strings.Contains(title, name)
	}
	return found, partial
}

// senderText describes a sender in words, without its secrets. It returns "" if there is no sender.
func senderText(s *api.PutSender) string {
	if s == nil {
		return ""
	}
	texts := []string{s.Preset}
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		texts = append(texts, name+": "+s.Settings[name])
	}
	return strings.Join(texts, ", ")
}

// setSenderForms sets the template data of the forms and dialogs that concern the node's sender.
func (t *triggerPane) setSenderForms(ctx context.Context) {
	current := map[string]string{}
	if t.Sender != nil {
		current["sender"] = senderText(&api.PutSender{
			Preset: t.Sender.Preset, Settings: t.Sender.Settings,
		})
	}
	t.SenderForm = newFormView(ctx, "sender", current)
	t.NewSecretForm = newFormView(ctx, "new-secret", map[string]string{"ends": "86400"})
	t.EndForm = newFormView(ctx, "end", nil)
	t.SecretToEnd = confirmDialogData[secretToEnd](ctx)
	t.SenderToRemove = confirmDialogData[api.Sender](ctx)
	t.PresetFields = t.presetFields(t.SenderForm.Value("preset"))
}

// presetFields returns the part of the sender form that depends on the preset. name is the ID, the
// title or an alias of the preset.
func (t *triggerPane) presetFields(name string) presetFields {
	f := presetFields{WorkflowID: t.WorkflowID, NodeID: t.NodeID, Form: t.SenderForm}
	preset, begins := findPreset(t.Presets, name)
	if f.Form.values["of"] != preset.ID {
		// Discard the values that were typed for another preset. They may be secrets, and this
		// preset may have the same fields but show their values in clear text.
		f.Form.values = maps.Clone(f.Form.values)
		maps.DeleteFunc(f.Form.values, func(field, _ string) bool {
			return field == "secret" || strings.HasPrefix(field, settingFieldPrefix)
		})
	}
	if f.Preset, f.Unknown = preset, !begins; preset.ID == "" || t.Sender == nil ||
		preset.ID != t.Sender.Preset {
		return f
	}
	f.SenderHasPreset, f.Form.current = true, maps.Clone(f.Form.current)
	for setting, value := range t.Sender.Settings {
		f.Form.current[settingFieldPrefix+setting] = value
	}
	return f
}

// requestedPresetFields returns the part of the sender form that depends on the preset, for the
// preset whose name the operator has typed.
func (c *Console) requestedPresetFields(r *http.Request) (presetFields, error) {
	query := r.URL.Query()
	t, err := c.triggerPane(r.Context(), query.Get("workflow"), query.Get("node"))
	return t.presetFields(query.Get("preset")), err
}

// senderForm returns the form that sets a trigger node's sender. Its fields depend on the preset.
// If the operator chooses another preset, the first post only shows the fields of that preset, and
// the second post saves the sender.
func (c *Console) senderForm() *form {
	return &form{
		name:                 "sender",
		operation:            "PutSender",
		showProblemAsMessage: true,
		savesUnedited:        true,
		settings: []setting{{"sender", []string{"sender"}, func(values []string) string {
			if values[0] == "" {
				return "none"
			}
			return quoteValues(values)
		}}},
		fieldByAPIName: map[string]string{"secrets": "secret"},
		maxBytes:       maxSenderFormBytes,
		pageURL:        workflowPageURL,
		showPage:       c.showWorkflow,
		save:           c.saveSender,
	}
}

func (c *Console) saveSender(r *http.Request, p *postedForm) (string, error) {
	ctx, caller := r.Context(), signin.Caller(r.Context())
	presets, err := c.senderPresets(ctx)
	if err != nil {
		return "", err
	}
	preset, _ := findPreset(presets, p.values["preset"])
	if preset.ID != "" && p.values["of"] != preset.ID {
		return "", &operate.Error{
			Code:   codeConfirmationRequired,
			Detail: "Not set yet: see what is asked for " + preset.Title + ", then set the sender.",
		}
	}
	put := api.PutSender{
		Preset:   cmp.Or(preset.ID, strings.TrimSpace(p.values["preset"])),
		Settings: map[string]string{},
	}
	for _, s := range preset.Settings {
		if value := p.values[settingFieldPrefix+s.Name]; value != "" {
			put.Settings[s.Name] = value
		}
	}
	wanted := maps.Clone(put.Settings)
	maps.DeleteFunc(wanted, func(name, _ string) bool { return isSecretSetting(preset, name) })
	p.values["sender"] = senderText(&api.PutSender{Preset: put.Preset, Settings: wanted})
	if secret := p.values["secret"]; secret != "" {
		put.Secrets = []string{secret}
	}
	ctx = operate.WithSenderCondition(ctx, func(now *api.PutSender) error {
		return p.checkEditConflict(map[string]string{"sender": senderText(now)})
	})
	_, err = c.Operate.PutSender(ctx, caller, r.PathValue("id"), r.URL.Query().Get("node"), put)
	return "The sender is set: from the next request on.", withSettingLabels(err, preset)
}

func isSecretSetting(preset api.SenderPreset, name string) bool {
	return slices.ContainsFunc(preset.Settings, func(s api.PresetSetting) bool {
		return s.Name == name && s.Secret
	})
}

// withSettingLabels returns err with the label of each invalid setting before the description of
// its problem.
func withSettingLabels(err error, preset api.SenderPreset) error {
	refused, ok := errors.AsType[*operate.Error](err)
	if !ok {
		return err
	}
	labelled := *refused
	labelled.Fields = slices.Clone(refused.Fields)
	for i, field := range labelled.Fields {
		for _, s := range preset.Settings {
			if field.Field == settingFieldPrefix+s.Name {
				labelled.Fields[i].Problem = s.Label + ": " + field.Problem
			}
		}
	}
	return &labelled
}

// newSecretForm returns the form that adds a secret to a trigger node's sender.
func (c *Console) newSecretForm() *form {
	return &form{
		name:                 "new-secret",
		operation:            "AddSenderSecret",
		showProblemAsMessage: true,
		fieldByAPIName:       map[string]string{"secrets": "secret"},
		maxBytes:             maxSenderFormBytes,
		pageURL:              workflowPageURL,
		showPage:             c.showWorkflow,
		save: func(r *http.Request, p *postedForm) (string, error) {
			add := api.AddSenderSecret{Secret: p.values["secret"]}
			if text := p.values["ends"]; text != "" {
				seconds, err := strconv.ParseInt(text, 10, 32)
				if err != nil {
					return "", incompleteFormError()
				}
				add.EndOthersAfterSeconds = &seconds
			}
			_, err := c.Operate.AddSenderSecret(r.Context(), signin.Caller(r.Context()),
				r.PathValue("id"), r.URL.Query().Get("node"), add)
			return "The new secret works. Give it to the sender now.", err
		},
	}
}

// oldSecretsEndChoices are the choices for how long the sender's other secrets stay valid after a
// new one was added.
var oldSecretsEndChoices = []durationChoice{
	{"0", "end at once"},
	{"3600", "work for 1 hour more"},
	{"86400", "work for 1 day more"},
	{"", "stay"},
}

// senderRemovalForm returns a form that asks for confirmation and then calls save, which ends the
// validity of one of a sender's secrets or removes the sender.
func (c *Console) senderRemovalForm(
	operation string, save func(r *http.Request, p *postedForm) (string, error),
) *form {
	return &form{
		name: "end", operation: operation, pageURL: workflowPageURL, showPage: c.showWorkflow,
		save: save,
	}
}

// requestedSender returns the sender of the trigger node that the request names. It returns an
// error if the node has no sender, which happens if somebody has removed the sender since the page
// was loaded.
func (c *Console) requestedSender(r *http.Request) (*api.Sender, error) {
	node, err := c.Operate.TriggerNode(r.Context(), signin.Caller(r.Context()), r.PathValue("id"),
		r.URL.Query().Get("node"))
	if err == nil && node.Sender == nil {
		err = &operate.Error{Code: api.CodeNotFound, Detail: "There is no sender any more."}
	}
	return node.Sender, err
}

// secretToEnd is the template data of the dialog that asks whether to end a secret.
type secretToEnd struct{ ID string }

func (c *Console) endSecretForm() *form {
	return c.senderRemovalForm(
		"RemoveSenderSecret",
		func(r *http.Request, p *postedForm) (string,
			error,
		) {
			secret := r.PathValue("secret")
			sender, err := c.requestedSender(r)
			if err == nil && slices.ContainsFunc(sender.Secrets, func(s api.SenderSecret) bool {
				return s.ID == secret
			}) {
				err = p.requireConfirmation(&secretToEnd{secret})
			}
			if err == nil {
				err = c.Operate.RemoveSenderSecret(r.Context(), signin.Caller(r.Context()),
					r.PathValue("id"), r.URL.Query().Get("node"), secret)
			}
			return "The secret has ended.", err
		},
	)
}

func (c *Console) removeSenderForm() *form {
	return c.senderRemovalForm("RemoveSender", func(r *http.Request, p *postedForm) (string,
		error,
	) {
		sender, err := c.requestedSender(r)
		if err == nil {
			err = p.requireConfirmation(sender)
		}
		if err == nil {
			err = c.Operate.RemoveSender(r.Context(), signin.Caller(r.Context()),
				r.PathValue("id"), r.URL.Query().Get("node"))
		}
		return "The sender is removed: the token alone opens it.", err
	})
}
