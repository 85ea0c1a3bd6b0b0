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
		{
			"stripe", "", "application/json", "", `{"id":12345678901234567890}`,
			"12345678901234567890", true,
		},
		{
			"stripe", "", "application/json", "", `{"id":"` + long + `"}`,
			"sha256:" + hexOf(sum256(long)), true,
		},
		{
			"stripe", "", "application/json", "", `{"id":"a\u0000"}`,
			"sha256:" + hexOf(sum256("a\x00")), true,
		},
		{
			"stripe", "ptr:/no, header:X-Own", "application/json", "X-Own: h", `{"id":"evt_1"}`,
			"h", false,
		},
		{"github", "", "", "X-Github-Delivery: g", `{}`, "g", false},
		{
			"github", "", "", "X-Github-Delivery: " + long, `{}`,
			"header-sha256:" + hexOf(sum256(long)), true,
		},
		{
			"slack", "", "application/x-www-form-urlencoded", "",
			`payload=%7B%22trigger_id%22%3A%22t1%22%7D`, "t1", true,
		},
		{
			"slack", "", "application/x-www-form-urlencoded", "", `command=x&trigger_id=t2`, "t2",
			true,
		},
		{"slack", "", "text/plain", "", `command=x&trigger_id=t2`, "", false},
		{"typeform", "", "", "", `{"event_id":"e","form_response":{"token":"t"}}`, "e", true},
		{"typeform", "", "", "", `{"form_response":{"token":"t"}}`, "t", true},
		{"calendly", "", "", "", `{"event":"e","created_at":"c","payload":{"uri":"u"}}`, "e|c|u", true},
		{"calendly", "", "", "", `{"event":"e","payload":{"uri":"u"}}`, "e|u", true},
		{"msgraph", "", "", "", `{"value":[{"id":"a"}]}`, "a", true},
		{"msgraph", "", "", "", `{"value":[{"id":"a"},{"id":"b|%"}]}`, "a|b%7C%25", true},
		{"msgraph", "", "", "", `{"value":[{"id":"a"},{}]}`, "", false},
		{"msgraph", "", "", "", `{"value":[]}`, "", false},
		{
			"meta", "", "", "",
			`{"entry":[{"changes":[{"value":{"messages":[{"id":"wamid.1"}]}}]}]}`, "wamid.1", true,
		},
		{
			"meta", "", "", "",
			`{"entry":[{"changes":[{"value":{"statuses":[{"id":"wamid.1","status":"read"}]}}]}]}`,
			"wamid.1|read", true,
		},
		{
			"meta", "", "", "", `{"entry":[{"changes":[{"value":{"statuses":[{"id":"wamid.1",` +
				`"status":"read","timestamp":"17","recipient_participant_id":"49"}]}}]}]}`,
			"wamid.1|read|49", true,
		},
		{
			"meta", "", "", "", `{"entry":[{"changes":[{"value":{"statuses":[{"id":"wamid.1",` +
				`"status":"read","timestamp":"17","recipient_participant_user_id":"u"}]}}]}]}`,
			"wamid.1|read|u", true,
		},
		{
			"meta", "", "", "", `{"entry":[{"changes":[{"value":{"statuses":[{"id":"wamid.1",` +
				`"status":"read","timestamp":"17"}]}}]}]}`, "wamid.1|read|17", true,
		},
		{
			"meta", "", "", "", `{"entry":[{"messaging":[{"message":{"mid":"m1","text":"a"}}]}]}`,
			"m1", true,
		},
		{
			"meta", "", "", "",
			`{"entry":[{"messaging":[{"message":{"mid":"m1","is_deleted":true}}]}]}`, "m1|true",
			true,
		},
		{"plain", "ptr:/a", "", "", `{"a":true}`, "", false},
		{"meta", "", "", "", `{"entry":[{"id":"1","changes":[{"field":"feed"}]}]}`, "", false},
		{
			"twilio", "", "application/x-www-form-urlencoded", "I-Twilio-Idempotency-Token: i",
			`Digits=1`, "i", false,
		},
		{
			"twilio", "", "application/x-www-form-urlencoded", "", `CallSid=CA1&Digits=1`, "CA1",
			true,
		},
		{
			"twilio", "", "application/x-www-form-urlencoded", "",
			`CallSid=CA1&CallStatus=in-progress`, "", false,
		},
		{
			"twilio", "", "application/x-www-form-urlencoded", "",
			`MessageSid=SM1&MessageStatus=sent`, "SM1|sent", true,
		},
		{
			"twilio", "", "application/x-www-form-urlencoded", "",
			`CallSid=CA1&RecordingSid=RE1&RecordingStatus=completed`, "RE1|completed", true,
		},
		{
			"twilio", "", "application/x-www-form-urlencoded", "",
			`CallSid=CA1&ConferenceSid=CF1&StatusCallbackEvent=participant-mute&SequenceNumber=3`,
			"CF1|participant-mute|3", true,
		},
		{
			"mailgun", "", "multipart/form-data; boundary=b", "",
			"--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\ntok\r\n--b--\r\n", "tok",
			true,
		},
		{
			"zoom", "", "", "", `{"event":"e","event_ts":1,"payload":{"object":{"uuid":"u=="}}}`,
			"e|1|u==", true,
		},
		{
			"zoom", "", "", "", `{"event":"e","event_ts":1,"payload":{"object":{"uuid":"u==",` +
				`"participant":{"user_id":"7","id":"x"}}}}`, "e|1|u==|7", true,
		},
		{
			"zoom", "", "", "", `{"event":"e","event_ts":1,"payload":{"object":{"uuid":"u==",` +
				`"participant":{"id":"x"}}}}`, "e|1|u==|x", true,
		},
		{
			"zoom", "", "", "", `{"event":"e","event_ts":1,"payload":{"object":{"uuid":"u==",` +
				`"participant":{"id":""}}}}`, "", false,
		},
		{
			"zoom", "", "", "", `{"event":"e","event_ts":1,"payload":{"object":{"uuid":"u==",` +
				`"registrant":{"id":"r"}}}}`, "e|1|u==|r", true,
		},
		{"zoom", "", "", "", `{"event":"e","event_ts":1}`, "", false},
		{"hmac", "", "", "X-Id: seven", `{}`, "seven", false},
		{"plain", "ptr:/a~1b/0/*", "", "", `{"a/b":[{"*":"x"}]}`, "x", true},
		{"plain", "ptr:/a/01", "", "", `{"a":["x","y"]}`, "", false},
		{
			"plain", "form:a", "application/x-www-form-urlencoded; charset=utf-8", "", `a=&a=2`, "",
			false,
		},
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
		r := &sender.Request{
			Method: "POST",
			Header: map[string][]string{"Content-Type": {c.contentType}},
			Body:   []byte(c.body),
		}
		if name, value, ok := strings.Cut(c.header, ": "); ok {
			r.Header[name] = []string{value}
		}
		if got := compile(t, config).UnsignedDeliveryID(r, sender.Verdict{}); got.ID != c.want ||
			got.Derived != c.derived || got.Signed {
			t.Errorf("%s %s %.80s: %+v, want %q", c.preset, c.set, c.body, got, c.want)
		}
	}
	events := compile(t, sender.Config{Preset: "cloudevents"})
	if got := events.UnsignedDeliveryID(&sender.Request{
		Header: map[string][]string{"Ce-Source": {"/s"}, "Ce-Id": {"1"}},
	}, sender.Verdict{}); got.ID != "/s|1" || got.Derived {
		t.Errorf("%+v", got)
	}
	if got := events.UnsignedDeliveryID(&sender.Request{Body: []byte(`{"source":"/s","id":"1"}`)},
		sender.Verdict{}); got.ID != "/s|1" || !got.Derived {
		t.Errorf("%+v", got)
	}
}

// Twilio sends several callbacks about one call or message, and they are not repeats of each other.
// A callback without an ID of its own is identified by Twilio's idempotency header.
func TestTwilioCallbacksOfOneCall(t *testing.T) {
	s := compile(t, configOf(t, "twilio"))
	for _, body := range []string{
		"CallSid=CA1&AnsweredBy=human", "CallSid=CA1&StreamSid=MZ1&StreamEvent=stream-started",
		"CallSid=CA1&TranscriptionSid=TR1", "CallSid=CA1&RecordingSid=RE1",
		"CallSid=CA1&ConferenceSid=CF1", "CallSid=CA1&StatusCallbackEvent=x",
		"CallSid=CA1&Timestamp=t", "CallSid=CA1&SequenceNumber=1&UnstableSpeechResult=a",
		"CallSid=CA1&CallStatus=in-progress&SequenceNumber=1&UnstableSpeechResult=a",
		"CallSid=CA1&CallStatus=in-progress&SequenceNumber=1&StableSpeechResult=a",
		"MessageSid=IM1&EventType=onMessageAdded",
		"AccountSid=AC1&CallSid=CA1&Sid=PK1&Capture=postal-code&PaymentCardNumber=xxxx-1111",
		"AccountSid=AC1&CallSid=CA1&Sid=PK1&Result=success&PaymentToken=tok_1",
	} {
		r := &sender.Request{
			Method: "POST",
			Header: map[string][]string{
				"Content-Type":               {"application/x-www-form-urlencoded"},
				"I-Twilio-Idempotency-Token": {"i"},
			},
			Body: []byte(body),
		}
		if got := s.UnsignedDeliveryID(r, sender.Verdict{}); got.ID != "i" {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

// signedBodies maps the ID of each preset whose signature covers the delivery ID to a body that
// contains a delivery ID.
func signedBodies() map[string]string {
	return map[string]string{
		"stripe":            `{"id":"evt_1"}`,
		"slack":             `{"event_id":"Ev1"}`,
		"discord":           `{"id":"1"}`,
		"notion":            `{"id":"n1"}`,
		"zoom":              `{"event":"e","event_ts":1,"payload":{"object":{"uuid":"u=="}}}`,
		"meta":              `{"entry":[{"changes":[{"value":{"messages":[{"id":"wamid.1"}]}}]}]}`,
		"typeform":          `{"event_id":"t1"}`,
		"calendly":          `{"event":"e","created_at":"c","payload":{"uri":"u"}}`,
		"pagerduty":         `{"event":{"id":"p1"}}`,
		"vercel":            `{"id":"v1"}`,
		"circleci":          `{"id":"c1"}`,
		"square":            `{"event_id":"s1"}`,
		"intercom":          `{"id":"i1"}`,
		"sendgrid":          `[{"sg_event_id":"g1"},{"sg_event_id":"g2"}]`,
		"standard-webhooks": `{}`,
		"mailgun":           `{}`,
	}
}

// Whatever an attacker changes in the unsigned parts of a request, the signed delivery ID stays the
// same. The test adds another header or a second value of a header, or sets a Content-Type that
// gives the body another meaning.
func TestSignedDeliveryIDs(t *testing.T) {
	bodies, tried := signedBodies(), map[string]bool{}
	for _, g := range signers() {
		preset, _ := sender.LookupPreset(g.preset)
		if len(preset.SignedDeliveryIDSources) == 0 && g.name != "hmac" {
			continue
		}
		tried[preset.ID] = true
		switch g.name {
		// The signer gitlab signs no delivery ID. TestSignedIDOfForms tests Twilio.
		case "gitlab", "twilio", "twilio port":
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			s, key, body := compile(t, g.config(g.secret("one"))), g.secret("one"),
				bodies[preset.ID]
			want := signedID(t, s, g.request(key, body, noon))
			if want.ID == "" || !want.Signed {
				t.Fatalf("%s has no signed ID: %+v", body, want)
			}
			for _, contentType := range []string{
				"", "text/plain", "application/x-www-form-urlencoded",
				"multipart/form-data; boundary=b", "multipart/form-data", "application/json",
			} {
				r := g.request(key, body, noon)
				r.Header["Content-Type"] = []string{contentType}
				if got := signedID(t, s, r); got != want &&
					(preset.ID != "mailgun" || s.Verify(r, noon).OK()) {
					t.Errorf("with Content-Type %q the ID is %+v, not %+v", contentType, got, want)
				}
			}
			for _, name := range []string{
				"X-Webhook-Delivery-Id", "X-Partner-Delivery", "Webhook-Id", "Svix-Id",
				"Idempotency-Key", "X-Github-Delivery", "X-Id",
			} {
				r := g.request(key, body, noon)
				r.Header[name] = append(r.Header[name], "other")
				if got := signedID(t, s, r); got != want {
					t.Errorf("with one more %s the ID is %+v, not %+v", name, got, want)
				}
				if d := s.UnsignedDeliveryID(r, s.Verify(r, noon)); d.Signed || d.ID == want.ID {
					t.Errorf("the ID that is signed is one that is not, too: %+v", d)
				}
			}
		})
	}
	for _, p := range sender.Presets() {
		if len(p.SignedDeliveryIDSources) > 0 && !tried[p.ID] {
			t.Errorf("the signed ID of %s was not tried", p.ID)
		}
	}
}

// signedID verifies a request and returns its signed delivery ID.
func signedID(t *testing.T, s *sender.Sender, r *sender.Request) sender.DeliveryID {
	t.Helper()
	v := s.Verify(r, noon)
	if !v.OK() {
		t.Logf("%v: %+v", r.Header["Content-Type"], v)
	}
	return s.SignedDeliveryID(r, v)
}

// A signed delivery ID comes only from data that the signature covers. A different Content-Type,
// which is not signed, does not change the ID.
func TestSignedIDOfForms(t *testing.T) {
	for _, c := range []struct {
		config    sender.Config
		body, url string
		types     []string
		want      string
	}{
		{
			sender.Config{Preset: "slack"},
			"payload=%7B%22trigger_id%22%3A%22t1%22%7D", "",
			[]string{
				"application/x-www-form-urlencoded", "text/plain",
				"multipart/form-data; boundary=x",
			},
			"t1",
		},
		{
			sender.Config{Preset: "slack"}, "command=x&trigger_id=t2", "", []string{
				"application/x-www-form-urlencoded", "text/plain",
				"multipart/form-data; boundary=x",
			}, "t2",
		},
		{
			sender.Config{Preset: "twilio"}, "MessageSid=SM1&Body=x", testURL, []string{
				"application/x-www-form-urlencoded", "text/plain",
			}, "SM1",
		},
		{
			sender.Config{
				Preset:   "hmac",
				Settings: map[string]string{"header": "X-Sig", "deliveryId": "form:id"},
			},
			"--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\nm1\r\n--b--\r\n", "",
			[]string{
				"multipart/form-data; boundary=b", "multipart/form-data; boundary=c", "text/plain",
			},
			"m1",
		},
		{
			sender.Config{Preset: "gitea", Settings: map[string]string{"deliveryId": "ptr:/after"}},
			"payload=%7B%22after%22%3A%22a1%22%7D", "",
			[]string{
				"application/x-www-form-urlencoded",
			},
			"a1",
		},
	} {
		c.config.Secrets = []sender.Secret{{Text: "secret"}}
		s := compile(t, c.config)
		r := sender.Request{
			Method: "POST",
			URL:    c.url,
			Header: map[string][]string{"Content-Type": {c.types[0]}},
			Body:   []byte(c.body),
		}
		signed, err := s.Sign(r, noon)
		if err != nil {
			t.Fatal(err)
		}
		for _, contentType := range c.types {
			sent := &sender.Request{
				Method: "POST",
				URL:    c.url,
				Header: maps.Clone(signed.Header),
				Body:   signed.Body,
			}
			sent.Header["Content-Type"] = []string{contentType}
			if got := signedID(t, s, sent); got.ID != c.want || !got.Signed {
				t.Errorf("%s as %s: %+v, want %q", c.config.Preset, contentType, got, c.want)
			}
		}
	}
}

// Gitea signs only the payload field of a form, so a form with any other field is refused.
// Otherwise, an attacker could add a second payload field, and a program that uses the last one
// would process unsigned data.
func TestFormsWithMoreThanTheSignedField(t *testing.T) {
	s := compile(t, sender.Config{Preset: "gitea", Secrets: []sender.Secret{{Text: "secret"}}})
	signature := hexOf(mac(sha256New, []byte("secret"), `{"a":1}`))
	for body, want := range map[string]bool{
		"payload=%7B%22a%22%3A1%7D":                           true,
		"payload=%7B%22a%22:1%7D&":                            true,
		"payload=%7B%22a%22%3A1%7D&payload=%7B%22a%22%3A2%7D": false,
		"payload=%7B%22a%22%3A1%7D&pay%6Coad=2":               false,
		"payload=%7B%22a%22%3A1%7D&extra=unsigned":            false,
		"extra=unsigned&payload=%7B%22a%22%3A1%7D":            false,
		"payload=%7B%22a%22%3A1%7D&=x":                        false,
		"payload=%7B%22a%22%3A1%7D&%zz=1":                     false,
		"payload=%7B%22a%22%3A1%7D;payload=2":                 false,
		`{"a":1}`:                                             true,
		`{"a":1}&payload=%7B%22a%22%3A2%7D`:                   false,
	} {
		r := &sender.Request{
			Method: "POST",
			Header: map[string][]string{
				"Content-Type":      {"application/x-www-form-urlencoded"},
				"X-Gitea-Signature": {signature},
			},
			Body: []byte(body),
		}
		if v := s.Verify(r, noon); v.OK() != want {
			t.Errorf("%s: %+v", body, v)
		}
	}
	multi := &sender.Request{
		Method: "POST",
		Header: map[string][]string{
			"Content-Type":      {"multipart/form-data; boundary=b"},
			"X-Gitea-Signature": {signature},
		},
		Body: []byte("evil\r\n--b\r\nContent-Disposition: form-data; " +
			"name=\"payload\"\r\n\r\n{\"a\":1}\r\n--b\r\nContent-Disposition: form-data; " +
			"name=\"f\"; filename=\"f\"\r\n\r\nevil\r\n--b--\r\n"),
	}
	if v := s.Verify(multi, noon); v.OK() {
		t.Error("a part of a multipart form is not signed, and it verifies")
	}
}

// If a header is repeated, its first non-empty value is the delivery ID.
func TestTheFirstValueOfAHeaderIsTheID(t *testing.T) {
	t.Parallel()
	for _, g := range signers() {
		if g.name != "github" {
			continue
		}
		s := compile(t, g.config(g.secret("one")))
		r := g.request(g.secret("one"), `{}`, noon)
		r.Header["X-Github-Delivery"] = []string{"", "a", "b"}
		if got := s.UnsignedDeliveryID(r, s.Verify(r, noon)); got.ID != "a" || got.Derived {
			t.Errorf("%+v", got)
		}
		return
	}
	t.Fatal("there is no signer of GitHub's preset")
}
