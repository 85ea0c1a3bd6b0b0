package sender_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/sender"
)

// After SetDeliveryID and Sign, the request verifies, and its delivery ID is the one that was set.
func TestIdentify(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		preset, set, contentType, body string
		want                           string // the body; "" if unchanged, with the ID in a header
		id                             string // the ID that is found
	}{
		{"github", "", "application/json", `{"id":1}`, "", "d-1"},
		{"standard-webhooks", "", "application/json", `{}`, "", "d-1"},
		{
			"stripe", "", "application/json", `{"z": 1, "id": "evt_1", "html": "<&>"}`,
			`{"html":"<&>","id":"d-1","z":1}`, "d-1",
		},
		{"stripe", "", "application/json", ``, `{"id":"d-1"}`, "d-1"},
		{"slack", "", "application/json", `{"trigger_id":"t"}`, `{"trigger_id":"d-1"}`, "d-1"},
		{"slack", "", "application/json", `{}`, `{"event_id":"d-1"}`, "d-1"},
		{
			"slack", "", form, `command=%2Fx&trigger_id=t&text=a`,
			`command=%2Fx&text=a&trigger_id=d-1`, "d-1",
		},
		{"slack", "", form, `command=%2Fx`, `command=%2Fx&trigger_id=d-1`, "d-1"},
		{
			"zoom", "", "application/json",
			`{"event":"e","event_ts":1,"payload":{"object":{"uuid":"u"}}}`,
			`{"event":"e","event_ts":1,"payload":{"object":{"uuid":"d-1"}}}`, "e|1|d-1",
		},
		{
			"zoom", "", "application/json", `{}`,
			`{"event":"d-1","event_ts":"d-1","payload":{"object":{"uuid":"d-1"}}}`, "d-1|d-1|d-1",
		},
		{
			"msgraph", "", "application/json", `{"value":[{"id":"a"},{"id":"b"}]}`,
			`{"value":[{"id":"d-1"},{"id":"d-1"}]}`, "d-1|d-1",
		},
		{
			"meta", "", "application/json", `{}`,
			`{"entry":[{"changes":[{"value":{"messages":[{"id":"d-1"}]}}]}]}`, "d-1",
		},
		{
			"meta", "", "application/json",
			`{"entry":[{"changes":[{"value":{"statuses":[{"id":"a","status":"read"}]}}]}]}`,
			`{"entry":[{"changes":[{"value":{"statuses":[{"id":"d-1","status":"read"}]}}]}]}`,
			"d-1|read",
		},
		{
			"twilio", "", form, `MessageSid=SM1&MessageStatus=sent`,
			`MessageStatus=sent&MessageSid=d-1`, "d-1|sent",
		},
		{"twilio", "", form, `Body=x`, "", "d-1"},
		{"twilio", "", form, `MessageSid=SM1&Body=x`, `Body=x&MessageSid=d-1`, "d-1"},
		{"twilio", "", form, `CallSid=CA1&StreamSid=MZ1`, "", "d-1"},
		{"mailgun", "", form, `event=x`, `event=x&token=d-1`, "d-1"},
		{
			"mailgun", "", "application/json", `{"a":1}`, `{"a":1,"signature":{"token":"d-1"}}`,
			"d-1",
		},
		{"plain", "ptr:/no/id, header:X-Own", "text/plain", `text`, "", "d-1"},
		{"cloudevents", "", "application/json", `{}`, "", "d-1|d-1"},
	} {
		config := sender.Config{Preset: c.preset, Settings: map[string]string{}}
		if p, _ := sender.LookupPreset(c.preset); p.Verifies {
			config = configOf(t, c.preset)
		} else if c.set != "" {
			config.Settings["deliveryId"] = c.set
		}
		s := compile(t, config)
		before := sender.Request{
			Method: "POST",
			URL:    testURL,
			Header: map[string][]string{"Content-Type": {c.contentType}},
			Body:   []byte(c.body),
		}
		r := before
		if !s.SetDeliveryID(&r, "d-1") {
			t.Errorf("%+v: it can have no delivery ID", c)
			continue
		}
		if len(before.Header) != 1 || string(before.Body) != c.body {
			t.Errorf("%+v: the caller's request was changed", c)
		}
		if want := c.want; (want != "" && string(r.Body) != want) ||
			(want == "" && string(r.Body) != c.body) {
			t.Errorf("%+v: the body is %s", c, r.Body)
		}
		signed, err := s.Sign(r, noon)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		again := &sender.Request{
			Method: "POST",
			URL:    r.URL,
			Header: signed.Header,
			Body:   signed.Body,
		}
		v := s.Verify(again, noon)
		d := s.SignedDeliveryID(again, v)
		if d.ID == "" {
			d = s.UnsignedDeliveryID(again, v)
		}
		if d.ID != c.id {
			t.Errorf("%+v: the delivery ID is %q", c, d.ID)
		}
	}
}

// SetDeliveryID leaves the body unchanged if it cannot set the ID there. Sign returns the reason
// why it cannot sign a request.
func TestWhatCannotBeTried(t *testing.T) {
	stripe := compile(t, configOf(t, "stripe"))
	for _, body := range []string{`[1]`, `"text"`, `{"id":`, `text`} {
		r := sender.Request{Method: "POST", Header: map[string][]string{}, Body: []byte(body)}
		if stripe.SetDeliveryID(&r, "d-1") || string(r.Body) != body {
			t.Errorf("%s became %s", body, r.Body)
		}
	}
	if r := (sender.Request{Body: []byte(`{}`)}); stripe.SetDeliveryID(&r, "") {
		t.Error("an empty ID is none")
	}
	for preset, want := range map[string]error{
		"mailgun": sender.ErrUnsupportedBody,
		"msgraph": sender.ErrUnsupportedBody,
		"square":  sender.ErrNoURL,
		"twilio":  sender.ErrNoURL,
		"discord": sender.ErrPublicKeyOnly,
	} {
		s := compile(t, configOf(t, preset))
		if _, err := s.Sign(sender.Request{
			Method: "POST",
			Header: map[string][]string{"Content-Type": {"text/plain"}},
			Body:   []byte("text"),
		}, noon); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", preset, err, want)
		}
	}
	if _, err := sender.Sign(sender.Config{Preset: "notion"}, sender.Request{},
		noon); !errors.Is(err, sender.ErrNoSecret) {
		t.Errorf("notion without its secret: %v", err)
	}
}

func TestDeliverySources(t *testing.T) {
	for _, c := range []struct {
		preset   string
		settings map[string]string
		signed   string
		other    string
	}{
		{"stripe", nil, "ptr:/id", ""},
		{"svix", nil, "header:Webhook-Id header:Svix-Id", ""},
		{"gitlab", nil, "header:Webhook-Id", "header:Idempotency-Key"},
		{"github", nil, "", "header:X-GitHub-Delivery"},
		{
			"stripe",
			map[string]string{"deliveryId": "header:X-One , form:two"},
			"form:two",
			"header:X-One",
		},
		{"hmac", map[string]string{"header": "X-Signature", "idHeader": "X-Id"}, "", "header:X-Id"},
		{
			"hmac", map[string]string{
				"header":   "X-Signature",
				"idHeader": "X-Id",
				"message":  "{id}{body}",
			}, "header:X-Id", "",
		},
		{"hmac", map[string]string{"header": "X-Signature"}, "", ""},
		{
			"meta", nil,
			"ptr:/entry/*/changes/*/value/messages/*/id " +
				"ptr:/entry/*/changes/*/value/statuses/*/id + " +
				"ptr:/entry/*/changes/*/value/statuses/*/status + " +
				"ptr:/entry/*/changes/*/value/statuses/*/recipient_participant_id " +
				"ptr:/entry/*/changes/*/value/statuses/*/id + " +
				"ptr:/entry/*/changes/*/value/statuses/*/status + " +
				"ptr:/entry/*/changes/*/value/statuses/*/recipient_participant_user_id " +
				"ptr:/entry/*/changes/*/value/statuses/*/id + " +
				"ptr:/entry/*/changes/*/value/statuses/*/status + " +
				"ptr:/entry/*/changes/*/value/statuses/*/timestamp " +
				"ptr:/entry/*/changes/*/value/statuses/*/id + " +
				"ptr:/entry/*/changes/*/value/statuses/*/status " +
				"ptr:/entry/*/messaging/*/message/mid + " +
				"ptr:/entry/*/messaging/*/message/is_deleted " +
				"ptr:/entry/*/messaging/*/message/mid", "",
		},
		{"cloudevents", nil, "", "header:Ce-Source + header:Ce-Id ptr:/source + ptr:/id"},
	} {
		signed, other, err := sender.DeliveryIDSources(c.preset, c.settings)
		if err != nil || strings.Join(signed, " ") != c.signed ||
			strings.Join(other, " ") != c.other {
			t.Errorf("%+v: %q, %q, %v", c, signed, other, err)
		}
	}
	if _, _, err := sender.DeliveryIDSources("nobody", nil); err == nil {
		t.Error("there is no such preset")
	}
}
