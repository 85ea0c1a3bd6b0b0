package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// setStripe makes Stripe the sender of a workflow's node, with two secrets. It returns the ID of
// the older one.
func (r *rig) setStripe(workflowID string) string {
	r.t.Helper()
	_, _, err := r.PutSender(r.t.Context(), workflowID, "node", edit.SenderSpec{
		Preset: "stripe", Secrets: []string{"whsec_a-first-secret", "whsec_another-secret"},
		Settings: map[string]string{"toleranceSeconds": "400"},
	})
	r.check(err)
	return r.workflow(workflowID).Trigger("node").Sender.Secrets[1].ID
}

// An operator can choose, change and remove a sender without JavaScript. The form asks for the
// values that a preset needs before it sets the sender, and does not overwrite a sender that
// somebody else has set.
func TestSenderWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	const path, form = "/workflows/orders?node=node", "sender-form"
	sender := func() *registry.Sender { return r.workflow("orders").Trigger("node").Sender }
	page := r.get(path, session)
	a := r.postAgain(page, form, map[string]string{"preset": "Nobody"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, `value="Nobody"`, "No preset has this name.")
	a = r.postAgain(page, form, map[string]string{"preset": " Stripe"}, session)
	wantSays(t, a, http.StatusConflict, "Not set yet: see what is asked for Stripe",
		`name="of" value="stripe"`, `name="settings.toleranceSeconds"`,
		`spellcheck="false"  type="password" required>`)
	asked := a
	a = r.postAgain(a, form, nil, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "it needs a secret: ")
	a = r.postAgain(a, form, map[string]string{
		"secret": "whsec_a-secret", "settings.toleranceSeconds": "x",
	}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, `value="x" aria-invalid="true"`,
		`<details class="rotate" open><summary>More settings`)
	if strings.Contains(a.body, "whsec_a-secret") || sender() != nil {
		t.Errorf("it is %+v, or the page has the secret", sender())
	}
	a = r.postAgain(a, form, map[string]string{
		"secret": "whsec_a-secret", "settings.toleranceSeconds": "600",
	}, session)
	if said := r.done(a, session); said != "The sender is set: from the next request on." ||
		a.location != path {
		t.Errorf("%s: %s", a.location, said)
	}
	if s := sender(); s.Preset != "stripe" || s.Settings["toleranceSeconds"] != "600" ||
		len(s.Secrets) != 1 {
		t.Errorf("it is %+v", s)
	}

	// If the operator types the name of the preset that is already set, the form first shows the
	// existing settings. Saving them keeps the existing secret.
	a = r.post(path, form, map[string]string{"preset": "stripe"}, session)
	wantSays(t, a, http.StatusConflict, `value="600"`, "(empty: those that are there stay)")
	mine := r.postAgain(a, form, map[string]string{"settings.toleranceSeconds": "500"}, session)
	r.done(mine, session)
	if s := sender(); s.Settings["toleranceSeconds"] != "500" || len(s.Secrets) != 1 {
		t.Errorf("it is %+v", s)
	}
	a = r.postAgain(a, form, map[string]string{"settings.toleranceSeconds": "450"}, session)
	wantSays(t, a, http.StatusConflict,
		"somebody else has changed the sender to “stripe, toleranceSeconds: 500”", `value="450"`)
	a = r.postAgain(asked, form, map[string]string{"secret": "whsec_a-third-secret"}, session)
	wantSays(t, a, http.StatusConflict, "changed the sender to “stripe, ")
	if s := sender(); s.Settings["toleranceSeconds"] != "500" || len(s.Secrets) != 1 {
		t.Errorf("a conflict has made it %+v", s)
	}

	// For JavaScript, the server renders the fields of the preset whose name was typed. If only a
	// part of a name was typed, there are no fields, but the name does not count as unknown.
	a = r.get("/fragments/sender?workflow=orders&node=node&preset=strIpe", session)
	wantSays(t, a, http.StatusOK, `data-of="stripe"`, `value="500"`)
	a = r.get("/fragments/sender?workflow=orders&node=node&preset=strip", session)
	if wantSays(t, a, http.StatusOK, `data-of=""`); strings.Contains(a.body, "No preset") {
		t.Error(a.body)
	}
}

// An operator can add and end the secrets of a sender, and remove the sender, without JavaScript.
func TestSecretsWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	older := r.setStripe("orders")
	const path, form = "/workflows/orders?node=node", "new-secret-form"
	sender := func() *registry.Sender { return r.workflow("orders").Trigger("node").Sender }
	a := r.post(path, form, map[string]string{"secret": "whsec_ space ", "ends": "3600"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "the secret begins or ends with white space",
		`<option value="3600" selected>`)
	a = r.postAgain(a, form, map[string]string{"secret": "whsec_a-third-secret", "ends": ""},
		session)
	if said := r.done(a, session); !strings.HasPrefix(said, "The new secret works.") ||
		len(sender().Secrets) != 3 {
		t.Errorf("%s: %+v", said, sender())
	}
	confirm := `form="end-form"[^>]* name="confirmed" value="yes"`
	page := r.get(path, session)
	a = r.press(page, `id="`+older+`:end"`, session)
	wantSays(t, a, http.StatusConflict, `aria-labelledby="end-title" open>`, "End this secret?")
	if r.done(r.press(a, confirm, session), session); len(sender().Secrets) != 2 {
		t.Errorf("it is %+v", sender())
	}
	a = r.press(a, confirm, session)
	wantSays(t, a, http.StatusNotFound, "There is no secret")
	a = r.press(r.get(path, session), `id="remove-sender"`, session)
	wantSays(t, a, http.StatusConflict, "Remove the sender?")
	if r.done(r.press(a, confirm, session), session); sender() != nil {
		t.Errorf("it is %+v", sender())
	}
	for _, part := range []string{`id="` + older + `:end"`, `id="remove-sender"`} {
		wantSays(t, r.press(page, part, session), http.StatusNotFound, "There is no sender")
	}
	values := url.Values{"confirmed": {"yes"}}
	a = r.call(http.MethodPost, "/workflows/orders/remove-sender?node=node", values, session)
	wantSays(t, a, http.StatusNotFound, "There is no sender")
}

// The operator types a secret for one preset, and then chooses another preset, whose key is public
// and is therefore shown in clear text. The page must not show the typed secret.
func TestSecretForAnotherPreset(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	r.setStripe("orders")
	session := r.signIn()
	page := r.get("/workflows/orders?node=node", session)
	typed := map[string]string{"secret": "whsec_typed-for-stripe ", "settings.publicKey": "typed"}
	wantHidden := func(a answer, part string) {
		t.Helper()
		wantSays(t, a, a.status, part)
		if strings.Contains(a.body, "whsec_typed") {
			t.Errorf("%d: the page has the secret", a.status)
		}
	}
	typed["preset"] = "discord"
	a := r.postAgain(page, "sender-form", typed, session)
	wantHidden(a, "Not set yet: see what is asked for Discord")
	const key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511"
	a = r.postAgain(a, "sender-form", map[string]string{"secret": key}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, `value="`+key+`"`)

	_, _, err := r.PutSender(t.Context(), "orders", "node", edit.SenderSpec{
		Preset: "discord", Secrets: []string{key + "a"},
	})
	r.check(err)
	wantHidden(r.postAgain(page, "new-secret-form", typed, session), "Public key")
	a = r.post("/workflows/orders?node=node", "new-secret-form",
		map[string]string{"secret": key}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, `value="`+key+`"`)
}
