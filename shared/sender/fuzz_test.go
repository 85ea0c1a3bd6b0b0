package sender

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzTemplate checks that the signature covers the whole body with every message template that
// Compile accepts from an operator.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		"{body}", "v0:{time}:{body}", "{id}.{time}.{body}", "{method}{url}{header:X}{body}", "{",
		"}{body}", "{{body}}", "{header:}", "{secret}{body}", "{ptr:/a}{body}", "\xff{body}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		s, err := Compile(Config{
			Preset: "hmac", Secrets: []Secret{{Text: "secret"}},
			Settings: map[string]string{
				"header": "X-Sig", "timeHeader": "X-Time", "idHeader": "X-Id", "message": message,
			},
		})
		if err != nil {
			return
		}
		now := time.Unix(1_790_000_000, 0)
		r := Request{
			Method: deliveryHTTPMethod,
			Header: map[string][]string{},
			URL:    "https://x/",
			Body:   []byte("abc"),
		}
		signed, err := s.Sign(r, now)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = signed.Header
		if v := s.Verify(&r, now); !v.OK() {
			t.Fatalf("%q: %+v", message, v)
		}
		r.Body = []byte("abd")
		if v := s.Verify(&r, now); v.OK() {
			t.Fatalf("%q does not sign the body", message)
		}
		if v := s.Verify(&Request{
			Method: deliveryHTTPMethod,
			Header: signed.Header,
			URL:    r.URL,
			Body:   []byte("abc"),
		}, now.Add(time.Hour)); v.OK() {
			t.Fatalf("%q does not sign the time", message)
		}
	})
}

// FuzzSplitters checks the parsing of headers that contain signatures and times: no value causes a
// panic, or makes any preset accept an unsigned request.
func FuzzSplitters(f *testing.F) {
	for _, seed := range []string{
		"", "t=1,v1=00", "t=1790000000,v1=,v1=zz", "v1,AAAA v1a,AAAA", "sha256=00", "sha1=",
		"sha512=zz", "v0=00", "v1=00,v2=11", "Bearer ", "Basic eDp5",
		"=,=,=", ",,,", "t=1790000000", "v1a,v1a", "\x00", "sha256==", "named=00",
	} {
		f.Add(seed, "1790000000", []byte("{}"))
	}
	var senders []*Sender
	for _, e := range presetTable() {
		if e.Secret == nil {
			continue
		}
		settings := map[string]string{}
		for _, s := range e.Settings {
			if s.Required {
				settings[s.Name] = "x"
			}
		}
		for _, secret := range []string{
			"whsec_c2VjcmV0IG9mIGEgZnV6eiB0ZXN0", strings.Repeat("a7", 32),
			"whpk_" + "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7",
		} {
			if s, err := Compile(Config{
				Preset:   e.ID,
				Secrets:  []Secret{{Text: secret}},
				Settings: settings,
			}); err == nil {
				senders = append(senders, s)
			}
		}
	}
	now := time.Unix(1_790_000_000, 0)
	f.Fuzz(func(t *testing.T, value, at string, body []byte) {
		for _, s := range senders {
			for i := range s.methods {
				m := &s.methods[i]
				r := &Request{
					Method: deliveryHTTPMethod,
					Header: map[string][]string{"Content-Type": {urlEncodedFormType}},
					URL:    "https://x/?a=b",
					Body:   body,
				}
				for _, source := range []valueSource{m.signature, m.time} {
					if source.kind == sourceHeader && source.name != "" {
						r.Header[source.name] = []string{value, value}
					}
				}
				if m.time.kind == sourceHeader && m.time.name != "" {
					r.Header[m.time.name] = []string{at}
				}
				for _, p := range m.message {
					if p.kind == partSource && p.source.kind == sourceHeader {
						r.Header[p.source.name] = []string{"id"}
					}
				}
				v := s.Verify(r, now)
				if v.OK() && s.entry.ID != "msgraph" {
					t.Fatalf("%s takes %q for a signature", s.entry.ID, value)
				}
				if h := s.Handshake(r, now); h != nil && len(h.Response.Body) > 3*maxEchoBytes {
					t.Fatalf("%s responds with %d bytes", s.entry.ID, len(h.Response.Body))
				}
				_ = s.SignedDeliveryID(r, v)
				_ = s.UnsignedDeliveryID(r, v)
				_ = s.Response(r)
			}
		}
	})
}

// FuzzPointer checks that a pointer resolves to the value that encoding/json finds.
func FuzzPointer(f *testing.F) {
	f.Add("/id", []byte(`{"id":"evt_1"}`))
	f.Add("/a/0/b~1c", []byte(`{"a":[{"b/c":1.50}]}`))
	f.Add("/\u00e9/*", []byte(`{"\u00e9":{"*":"\ud83d\ude00"}}`))
	f.Add("/a", []byte(`{"a":null}`))
	f.Add("/0", []byte(`["\\\"\u0000"]`))
	f.Add("/a/b", []byte(`{"a":{"b":"x"},"a":{"c":"y"}}`))
	f.Fuzz(func(t *testing.T, pointer string, body []byte) {
		s, err := parseSource("ptr:"+pointer, false)
		if err != nil {
			return
		}
		got := s.value(&Request{Body: body})
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		var document any
		if decoder.Decode(&document) != nil || !json.Valid(body) {
			if got != "" && !bytes.ContainsAny(body, "[{") { // not just too deep for encoding/json
				t.Fatalf("%q finds %q in what is no JSON: %q", pointer, got, body)
			}
			return
		}
		if want, unique := lookUp(document, s.pointer); unique && !hasTwice(body) && got != want {
			t.Fatalf("%q finds %q, want %q, in %q", pointer, got, want, body)
		}
	})
}

// lookUp resolves a pointer in a document that encoding/json has decoded. It returns "" unless the
// pointer selects a string or a number. comparable is false if package sender, which uses gjson,
// may decode the same value differently.
func lookUp(document any, pointer []string) (text string, comparable bool) {
	for _, token := range pointer {
		switch in := document.(type) {
		case map[string]any:
			document = in[token]
		case []any:
			index, ok := parseArrayIndex(token)
			if !ok || index >= len(in) {
				return "", true
			}
			document = in[index]
		default:
			return "", true
		}
	}
	switch value := document.(type) {
	case string:
		// The two parsers decode a lone surrogate differently.
		return value, !strings.Contains(value, "\ufffd")
	case json.Number:
		return value.String(), true
	default:
		return "", true
	}
}

// hasTwice reports whether the body contains two equal strings, which is the case if an object has
// two members with the same name. The results for such a body are not compared, because the package
// uses the first of the two members, and encoding/json the last.
func hasTwice(body []byte) bool {
	var names []string
	decoder := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		if name, ok := token.(string); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return len(slices.Compact(slices.Clone(names))) != len(names)
}

// FuzzForm checks that a form is parsed as by net/url, and that a multipart form causes no panic.
func FuzzForm(f *testing.F) {
	f.Add("a=1&b=2&a=3", "a")
	f.Add("payload=%7B%22a%22%3A1%7D", "payload")
	f.Add("a=%zz&b", "b")
	f.Add("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b--\r\n", "a")
	f.Fuzz(func(t *testing.T, body, name string) {
		r := &Request{
			Header: map[string][]string{"Content-Type": {urlEncodedFormType + "; charset=utf-8"}},
			Body:   []byte(body),
		}
		got, _ := r.formValue(name)
		if values, err := url.ParseQuery(body); err == nil && got != values.Get(name) {
			t.Fatalf("%q of %q is %q, want %q", name, body, got, values.Get(name))
		}
		_ = r.json()
		multi := &Request{
			Header: map[string][]string{"Content-Type": {"multipart/form-data; boundary=b"}},
			Body:   []byte(body),
		}
		_, _ = multi.formValue(name)
		_ = multi.json()
	})
}

// FuzzIdentify checks that a delivery ID can be found in a request after SetDeliveryID has put it
// there, and that a JSON body is otherwise unchanged.
func FuzzIdentify(f *testing.F) {
	f.Add("/id", []byte(`{"a":1.50,"id":"x"}`))
	f.Add("/a/b~1c", []byte(`{"a":{"d":[]}}`))
	f.Add("/a", []byte(`{"a":"<&>","a":2}`))
	f.Add("/\xff", []byte(``))
	f.Fuzz(func(t *testing.T, pointer string, body []byte) {
		s, err := Compile(Config{
			Preset:   "plain",
			Settings: map[string]string{"deliveryId": "ptr:" + pointer},
		})
		if err != nil {
			return
		}
		r := &Request{Body: body}
		if !s.SetDeliveryID(r, "d-1") {
			if !bytes.Equal(r.Body, body) {
				t.Fatalf("%q became %q", body, r.Body)
			}
			return
		}
		if d := s.UnsignedDeliveryID(r, Verdict{}); d.ID != "d-1" || !d.Derived {
			t.Fatalf("at %q of %q the ID is %+v", pointer, r.Body, d)
		}
		var before, after map[string]json.RawMessage
		if json.Unmarshal(body, &before) == nil && json.Unmarshal(r.Body, &after) == nil &&
			len(after) < len(before) {
			t.Fatalf("%q became %q", body, r.Body)
		}
	})
}
