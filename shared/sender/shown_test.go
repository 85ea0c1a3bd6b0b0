package sender_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/sender"
)

// A caller who may change a sender does not necessarily know its secret, and a caller who may only
// read sees no secret at all. So no setting may turn a secret into a delivery ID, or into anything
// else that a record shows.
func TestNoSettingShowsASecret(t *testing.T) {
	const secret = "a-secret-that-nobody-reads"
	for _, test := range []struct {
		preset   string
		settings map[string]string
		field    string // the refused field; "" means none
		header   string // the header that contains the secret
	}{
		{
			"header",
			map[string]string{"header": "x-webhook-delivery-id"},
			"settings.header",
			"X-Webhook-Delivery-Id",
		},
		{
			"header",
			map[string]string{"header": "X-Partner-Delivery"},
			"settings.header",
			"X-Partner-Delivery",
		},
		{
			"header",
			map[string]string{"header": "X-GitHub-Delivery"},
			"settings.header",
			"X-Github-Delivery",
		},
		{"header", map[string]string{"header": "Content-Type"}, "settings.header", "Content-Type"},
		{"header", map[string]string{"header": "user-agent"}, "settings.header", "User-Agent"},
		{
			"header", map[string]string{
				"header":     "X-Secret",
				"deliveryId": "ptr:/id, header:x-secret",
			}, "settings.deliveryId", "X-Secret",
		},
		{
			"gitlab",
			map[string]string{"deliveryId": "header:X-Gitlab-Token"},
			"settings.deliveryId", "X-Gitlab-Token",
		},
		{
			"bearer",
			map[string]string{"deliveryId": "header:Authorization"},
			"settings.deliveryId", "Authorization",
		},
		{
			"basic",
			map[string]string{"user": "u", "deliveryId": "header:authorization"},
			"settings.deliveryId", "Authorization",
		},
		{
			"github",
			map[string]string{"deliveryId": "header:Cookie"},
			"settings.deliveryId",
			"Cookie",
		},
		{
			"hmac",
			map[string]string{"header": "X-Signature", "idHeader": "Authorization"},
			"settings.idHeader", "Authorization",
		},
		{
			"header",
			map[string]string{"header": "X-Secret", "deliveryId": "header:X-Id"},
			"",
			"X-Secret",
		},
		{"header", map[string]string{"header": "Authorization"}, "", "Authorization"},
		{"hmac", map[string]string{"header": "X-Signature", "idHeader": "X-Id"}, "", "X-Signature"},
	} {
		config := sender.Config{
			Preset:   test.preset,
			Settings: test.settings,
			Secrets:  []sender.Secret{{ID: "1", Text: secret}},
		}
		err := sender.CheckSecretsHidden(config)
		var refused *sender.ConfigError
		switch {
		case test.field == "" && err != nil:
			t.Errorf("%s %v: %v", test.preset, test.settings, err)
		case test.field != "" &&
			(!errors.As(err, &refused) || refused.Field != test.field ||
				strings.Contains(err.Error(), secret)):
			t.Errorf("%s %v: %v, want a refusal of %s", test.preset, test.settings, err, test.field)
		}
		// An earlier version may have stored a sender with such settings. The sender still works,
		// but does not use the secret as a delivery ID.
		r := &sender.Request{
			Method: "POST",
			Body:   []byte("{}"),
			Header: map[string][]string{test.header: {"Bearer " + secret}},
		}
		id := compile(t, config).UnsignedDeliveryID(r, sender.Verdict{})
		if strings.Contains(id.ID, secret) {
			t.Errorf("%s %v: the delivery ID is the secret", test.preset, test.settings)
		}
	}
}

func TestSecretInBody(t *testing.T) {
	for _, p := range sender.Presets() {
		if got, want := sender.HasSecretOutsideHeaders(p.ID), p.ID == "msgraph"; got != want {
			t.Errorf("%s: %t, want %t", p.ID, got, want)
		}
	}
}
