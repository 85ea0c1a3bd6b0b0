package sender_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/sender"
)

func TestDeliveryIDs(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		preset, set string
		contentType string
		header      string // Name: value
		body        string
		want        string
		derived     bool
	}{
		{"stripe", "", "application/json", "", `{"id":"evt_1"}`, "evt_1", true},
		{"stripe", "", "application/json", "", `{"id":""}`, "", false},
		{"stripe", "", "application/json", "", `{"id":"evt_1"`, "", false},
		{"stripe", "", "application/json", "", `{"id":{"a":1}}`, "", false},
		{"stripe", "", "application/json", "", `{"id":12345678901234567890}`, "12345678901234567890", true},
		{"stripe", "", "application/json", "", `{"id":"` + long + `"}`, "sha256:" + hexOf(sum256(long)), true},
		{"stripe", "", "application/json", "", `{"id":"a\u0000"}`, "sha256:" + hexOf(sum256("a\x00")), true},
		{"stripe", "ptr:/no, header:X-Own", "application/json", "X-Own: h", `{"id":"evt_1"}`, "h", false},
		{"github", "", "", "X-Github-Delivery: g", `{}`, "g", false},
		{"github", "", "", "X-Github-Delivery: " + long, `{}`, "header-sha256:" + hexOf(sum256(long)), true},
		{"slack", "", "application/x-www-form-urlencoded", "", `payload=%7B%22trigger_id%22%3A%22t1%22%7D`, "t1", true},
		{"slack", "", "application/x-www-form-urlencoded", "", `command=x&trigger_id=t2`, "t2", true},
		{"slack", "", "text/plain", "", `command=x&trigger_id=t2`, "", false},
		{"msgraph", "", "", "", `{"value":[{"id":"a"}]}`, "a", true},
		{"msgraph", "", "", "", `{"value":[{"id":"a"},{"id":"b|%"}]}`, "a|b%7C%25", true},
		{"msgraph", "", "", "", `{"value":[{"id":"a"},{}]}`, "", false},
		{"msgraph", "", "", "", `{"value":[]}`, "", false},
		{"meta", "", "", "", `{"entry":[{"changes":[{"value":{"messages":[{"id":"wamid.1"}]}}]}]}`, "wamid.1", true},
		{"meta", "", "", "", `{"entry":[{"changes":[{"value":{"statuses":[{"id":"wamid.1","status":"read"}]}}]}]}`, "wamid.1|read", true},
		{"meta", "", "", "", `{"entry":[{"id":"1","changes":[{"field":"feed"}]}]}`, "", false},
		{"twilio", "", "application/x-www-form-urlencoded", "I-Twilio-Idempotency-Token: i", `CallSid=CA1`, "i", false},
		{"twilio", "", "application/x-www-form-urlencoded", "", `CallSid=CA1&Digits=1`, "CA1", true},
		{"twilio", "", "application/x-www-form-urlencoded", "", `CallSid=CA1&CallStatus=in-progress`, "", false},
		{"twilio", "", "application/x-www-form-urlencoded", "", `MessageSid=SM1&MessageStatus=sent`, "SM1|sent", true},
		{"mailgun", "", "multipart/form-data; boundary=b", "", "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\ntok\r\n--b--\r\n", "tok", true},
		{"zoom", "", "", "", `{"event":"e","event_ts":1,"payload":{"object":{"uuid":"u=="}}}`, "e|1|u==", true},
		{"zoom", "", "", "", `{"event":"e","event_ts":1}`, "", false},
		{"hmac", "", "", "X-Id: seven", `{}`, "seven", false},
		{"plain", "ptr:/a~1b/0/*", "", "", `{"a/b":[{"*":"x"}]}`, "x", true},
		{"plain", "ptr:/a/01", "", "", `{"a":["x","y"]}`, "", false},
		{"plain", "form:a", "application/x-www-form-urlencoded; charset=utf-8", "", `a=&a=2`, "", false},
	} {
		config := sender.Config{Preset: "plain"}
		if c.preset != "plain" {
			config = configOf(t, c.preset)
		}
		if c.set != "" {
			settings := map[string]string{"deliveryId": c.set}
			maps.Copy(settings, config.Settings)
			config.Settings = settings
		}
		r := &sender.Request{Method: "POST", Header: map[string][]string{"Content-Type": {c.contentType}}, Body: []byte(c.body)}
		if name, value, has := strings.Cut(c.header, ": "); has {
			r.Header[name] = []string{value}
		}
		if got := compile(t, config).Delivery(r); got.ID != c.want || got.Derived != c.derived {
			t.Errorf("%s %s %.80s: %+v, want %q", c.preset, c.set, c.body, got, c.want)
		}
	}
	events := compile(t, sender.Config{Preset: "cloudevents"})
	if got := events.Delivery(&sender.Request{Header: map[string][]string{"Ce-Source": {"/s"}, "Ce-Id": {"1"}}}); got.ID != "/s|1" || got.Derived {
		t.Errorf("%+v", got)
	}
	if got := events.Delivery(&sender.Request{Body: []byte(`{"source":"/s","id":"1"}`)}); got.ID != "/s|1" || !got.Derived {
		t.Errorf("%+v", got)
	}
}
