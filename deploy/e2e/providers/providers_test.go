// Package providers compares hookstart's verification of providers' requests with that of the
// providers' own npm libraries. The libraries are not part of the repository; npm ci in
// testdata/libraries installs them.
package providers

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	cryptorand "crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"hash"
	"maps"
	"math/rand/v2"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/sender"
)

var (
	seed  = flag.Uint64("seed", 1, "of the requests")
	count = flag.Int("requests", 5000, "how many requests are compared")
)

const libraries = "testdata/libraries"

// request is one request, as passed to the libraries and to hookstart.
type request struct {
	Library string            `json:"library"`
	Secret  string            `json:"secret"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`

	preset string
	how    []string // the changes that were made to the request
}

// provider creates requests that are signed as one webhook provider signs them. library is the npm
// library that verifies them for comparison.
type provider struct {
	library, preset string
	secret          func(n int) string
	// signature and time are the names of headers. time is "" if the signature header contains the
	// time, or if the provider does not sign a time.
	signature, time string
	sign            func(key string, r *request, at string)
}

func sum(h func() hash.Hash, key, text string) []byte {
	mac := hmac.New(h, []byte(key))
	_, _ = mac.Write([]byte(text)) // writing to a hash cannot fail
	return mac.Sum(nil)
}

func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// standard returns a provider of Standard Webhooks with the given prefix of the header names.
func standard(library, prefix string) provider {
	return provider{
		library:   library,
		preset:    "standard-webhooks",
		signature: prefix + "Signature",
		time:      prefix + "Timestamp",
		secret: func(n int) string {
			return "whsec_" + base64Of([]byte(fmt.Sprintf("standard-secret-number-%d", n)))
		},
		sign: func(key string, r *request, at string) {
			raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsec_"))
			if err != nil {
				panic(err)
			}
			id := prefix + "Id"
			if r.Headers[id] == "" {
				r.Headers[id] = "msg_1"
			}
			r.Headers[prefix+"Timestamp"] = at
			r.Headers[prefix+"Signature"] = "v1," +
				base64Of(sum(sha256.New, string(raw), r.Headers[id]+"."+at+"."+string(r.Body)))
		},
	}
}

func providers(t *testing.T) []provider {
	t.Helper()
	keys := make([]*ecdsa.PrivateKey, 2)
	public := make([]string, 2)
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader); err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKIXPublicKey(&keys[i].PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		public[i] = base64Of(der)
	}
	return []provider{
		{
			library: "stripe", preset: "stripe", signature: "Stripe-Signature",
			secret: func(n int) string { return fmt.Sprintf("whsec_stripe_%d", n) },
			sign: func(key string, r *request, at string) {
				r.Headers["Stripe-Signature"] = "t=" + at + ",v1=" +
					hex.EncodeToString(sum(sha256.New, key, at+"."+string(r.Body)))
			},
		},
		standard("svix", "Svix-"),
		standard("standardwebhooks", "Webhook-"),
		{
			library: "octokit", preset: "github", signature: "X-Hub-Signature-256",
			secret: func(n int) string { return fmt.Sprintf("github secret %d", n) },
			sign: func(key string, r *request, _ string) {
				r.Headers["X-Hub-Signature-256"] = "sha256=" +
					hex.EncodeToString(sum(sha256.New, key, string(r.Body)))
			},
		},
		{
			library: "twilio", preset: "twilio", signature: "X-Twilio-Signature",
			secret: func(n int) string { return fmt.Sprintf("twilio-token-%d", n) },
			sign:   signTwilio,
		},
		{
			library:   "sendgrid",
			preset:    "sendgrid",
			signature: "X-Twilio-Email-Event-Webhook-Signature",
			time:      "X-Twilio-Email-Event-Webhook-Timestamp",
			secret:    func(n int) string { return public[n] },
			sign: func(key string, r *request, at string) {
				digest := sha256.Sum256([]byte(at + string(r.Body)))
				signature, err := ecdsa.SignASN1(cryptorand.Reader, keys[slices.Index(public, key)],
					digest[:])
				if err != nil {
					panic(err)
				}
				r.Headers["X-Twilio-Email-Event-Webhook-Timestamp"] = at
				r.Headers["X-Twilio-Email-Event-Webhook-Signature"] = base64Of(signature)
			},
		},
	}
}

// signTwilio signs a request as Twilio does. It signs the URL and the sorted fields of a form. If
// the body is JSON, it adds the hash of the body to the URL, and signs only the URL.
func signTwilio(key string, r *request, _ string) {
	text := r.URL
	if r.Headers["Content-Type"] == "application/json" {
		digest := sha256.Sum256(r.Body)
		r.URL += "&bodySHA256=" + hex.EncodeToString(digest[:])
		text = r.URL
	} else if form, err := url.ParseQuery(string(r.Body)); err == nil {
		for _, name := range slices.Sorted(maps.Keys(form)) {
			for _, value := range slices.Compact(slices.Sorted(slices.Values(form[name]))) {
				text += name + value
			}
		}
	}
	r.Headers["X-Twilio-Signature"] = base64Of(sum(sha1.New, key, text))
}

var (
	jsonBodies = []string{
		`{"id":"evt_1"}`, `{}`, ``, ` `, `{"a":"ü😀"}`, "\ufeff{}", "{\"a\":1}\n",
		"{\"a\":\"\u2028\"}", strings.Repeat("x", 3000), `[{"sg_event_id":"g"}]`,
	}
	formBodies = []string{
		"From=%2B1415&Body=hi", "Body=a+b&From=%2b1", "Body=&From=1", "Body=%F0%9F%98%80",
		"A=1&A=2", "A=2&A=1&A=2", "b=1&B=2&a=3", "A", "A=1&&B=2", "=1",
		"A=1;B=2", "A=a%0Ab", "MessageSid=SM1&MessageStatus=sent", "A[]=1&A[]=2", "", "ü=1",
	}
	// Shifts of the signed time, in seconds. None is close to the tolerance of 300 s, where the
	// verdicts could differ because the libraries read the clock a little later than the test.
	shifts = []time.Duration{0, 0, 0, 0, 200, -200, 500, -500, 100_000, -1_000_000}
)

func pick[T any](r *rand.Rand, choices []T) T { return choices[r.IntN(len(choices))] }

// make returns a random request of the provider. It is signed, sometimes with an invalid time or
// with a secret that the receiver does not have, and then changed at random up to three times.
func (p *provider) make(r *rand.Rand, now time.Time) *request {
	key := p.secret(0)
	made := &request{
		Library: p.library,
		Secret:  key,
		URL:     "https://hooks.example.com/webhooks/wf?token=hst_t",
		Headers: map[string]string{"Content-Type": "application/json"},
		Body:    []byte(pick(r, jsonBodies)),
		preset:  p.preset,
	}
	if p.preset == "twilio" && r.IntN(4) > 0 {
		made.Body, made.Headers["Content-Type"] = []byte(pick(r, formBodies)),
			"application/x-www-form-urlencoded"
	}
	if p.preset == "standard-webhooks" && r.IntN(4) == 0 {
		made.Headers[strings.TrimSuffix(p.signature, "Signature")+"Id"] = pick(r, []string{
			"a.b", "msg 2", "1", "msg_1.1",
		})
	}
	//nolint:durationcheck // the shifts are numbers of seconds
	at := strconv.FormatInt(now.Add(pick(r, shifts)*time.Second).Unix(), 10)
	if r.IntN(8) == 0 {
		at = pick(r, []string{
			"0" + at, "+" + at, at + ".0", at + "abc", "1e9", "", "0", "-" + at, at + "000",
			"0x" + at,
		})
		made.how = append(made.how, "signed with the time "+at)
	}
	if r.IntN(12) == 0 {
		key = p.secret(1)
		made.how = append(made.how, "signed with another secret")
	}
	p.sign(key, made, at)
	for range r.IntN(4) {
		p.change(r, made)
	}
	for name, value := range made.Headers { // HTTP trims the values, too
		if made.Headers[name] = strings.Trim(value, " \t"); made.Headers[name] == "" {
			delete(made.Headers, name)
		}
	}
	return made
}

// change makes one random change to a signed request, and describes it in made.how.
func (p *provider) change(r *rand.Rand, made *request) {
	note := func(how string) { made.how = append(made.how, how) }
	signature := made.Headers[p.signature]
	set := func(how, value string) {
		note(how)
		made.Headers[p.signature] = value
	}
	flip := func(text string) string {
		if text == "" {
			return "x"
		}
		b := []byte(text)
		b[r.IntN(len(b))] ^= byte(1 << r.IntN(5))
		return strings.ToValidUTF8(string(b), "?")
	}
	switch r.IntN(22) {
	case 0:
		note("body changed")
		made.Body = []byte(flip(string(made.Body)))
	case 1:
		note("body longer")
		made.Body = append(made.Body, pick(r, []string{" ", "\n", "x", "&x=1", "\x00"})...)
	case 2:
		note("body shorter")
		made.Body = []byte(strings.ToValidUTF8(string(made.Body[:len(made.Body)-
			min(len(made.Body), 1)]), ""))
	case 3:
		set("signature changed", strings.Map(visible, flip(signature)))
	case 4:
		set("signature shorter", signature[:len(signature)-min(len(signature), 1+r.IntN(3))])
	case 5:
		set("signature longer", signature+pick(r, []string{"0", "00", "=", "A", ",", " x"}))
	case 6:
		set("signature in upper case", strings.ToUpper(signature))
	case 7:
		set("hex of the signature in upper case", upperHex(signature))
	case 8:
		set("base64url", strings.NewReplacer("+", "-", "/", "_").Replace(signature))
	case 9:
		set("without padding", strings.TrimRight(signature, "="))
	case 10:
		set("spaces",
			strings.ReplaceAll(signature, ",", pick(r, []string{", ", " ,", " , ", ",\t"})))
	case 11:
		set("a wrong one before", pick(r, []string{
			"v1=00,", "v1,AAAA ", "t=1,", "v1=" + strings.Repeat("0", 64) + ",",
		})+signature)
	case 12:
		set("a wrong one behind", signature+pick(r, []string{
			",v1=00", " v1,AAAA", ",t=1", ",v0=1", ";v1=1",
		}))
	case 13:
		set("another scheme", strings.NewReplacer("v1", "v0", "sha256", "sha1").Replace(signature))
	case 14:
		set("another separator", strings.NewReplacer("=", ":", ",", ";").Replace(signature))
	case 15:
		set("no signature", "")
	case 16:
		set("twice", signature+","+signature)
	case 17:
		set("twice, with a space", signature+" "+signature)
	case 18:
		if p.time != "" {
			note("time changed")
			made.Headers[p.time] = flip(made.Headers[p.time])
		}
	case 19:
		if p.preset == "standard-webhooks" {
			note("ID changed")
			made.Headers[strings.TrimSuffix(p.signature, "Signature")+"Id"] = "msg_2"
		}
	case 20:
		note("URL changed")
		made.URL = pick(r, []string{
			made.URL + "&x=1", strings.Replace(made.URL, "hst_t", "hst%5Ft", 1),
			strings.Replace(made.URL, ".com/", ".com:443/", 1),
			strings.Replace(made.URL, ".com/", ".com:8443/", 1),
			strings.Replace(made.URL, "https:", "http:", 1), made.URL + "&bodySHA256=00",
			strings.Replace(made.URL, "wf", "WF", 1),
		})
	default:
		set("quoted", strings.Replace(signature, "v1=", `v1="`, 1))
	}
}

// visible is a mapping for strings.Map that drops characters that a header cannot contain.
func visible(c rune) rune {
	if c < ' ' || c > '~' {
		return -1
	}
	return c
}

func upperHex(signature string) string {
	at := strings.LastIndexByte(signature, '=')
	return signature[:at+1] + strings.ToUpper(signature[at+1:])
}

// verify returns hookstart's verdict on the request at the time now.
func (r *request) verify(t *testing.T, now time.Time) sender.Verdict {
	t.Helper()
	s, err := sender.Compile(sender.Config{
		Preset:  r.preset,
		Secrets: []sender.Secret{{ID: "1", Text: r.Secret}},
	})
	if err != nil {
		t.Fatal(err)
	}
	in := &sender.Request{Method: "POST", URL: r.URL, Header: map[string][]string{}, Body: r.Body}
	_, in.Query, _ = strings.Cut(r.URL, "?")
	for name, value := range r.Headers {
		in.Header[textproto.CanonicalMIMEHeaderKey(name)] = []string{value}
	}
	return s.Verify(in, now)
}

// plain returns the request with the signature in the form that every library accepts. It removes
// white space around the parts of the signature header and converts hex digits to lower case,
// because hookstart also accepts the other forms, but not every library does.
func (r *request) plain() *request {
	c := *r
	c.Headers = maps.Clone(r.Headers)
	for _, name := range []string{"Stripe-Signature", "X-Hub-Signature-256"} {
		value, ok := c.Headers[name]
		if !ok {
			continue
		}
		var parts []string
		for part := range strings.SplitSeq(value, ",") {
			name, text, ok := strings.Cut(strings.TrimSpace(part), "=")
			if !ok {
				continue // this part of the header does not have the form NAME=VALUE
			}
			if name == "v1" || name == "sha256" {
				text = strings.ToLower(text)
			}
			parts = append(parts, name+"="+text)
		}
		c.Headers[name] = strings.Join(parts, ",")
	}
	return &c
}

// ask returns the verdicts of the providers' libraries on the requests, in the same order. It runs
// verify.js in Node.js.
func ask(t *testing.T, requests []*request) []string {
	t.Helper()
	var in bytes.Buffer
	for _, r := range requests {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(line)
		in.WriteByte('\n')
	}
	command := exec.CommandContext(t.Context(), "node", "verify.js")
	command.Dir, command.Stdin = libraries, &in
	var errors bytes.Buffer
	command.Stderr = &errors
	out, err := command.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, errors.String())
	}
	var answers []string
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		answers = append(answers, lines.Text())
	}
	if len(answers) != len(requests) {
		t.Fatalf("%d answers to %d requests", len(answers), len(requests))
	}
	return answers
}

// requireLibraries skips the test if the libraries are not installed. If HOOKSTART_TEST_REQUIRE
// includes them, it fails the test instead.
func requireLibraries(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(libraries, "node_modules", "stripe"))
	}
	switch {
	case err == nil:
	case slices.Contains(strings.Split(os.Getenv("HOOKSTART_TEST_REQUIRE"), ","), "providers"):
		t.Fatalf("the providers' libraries are required: npm ci --ignore-scripts --prefix "+
			"deploy/e2e/providers/testdata/libraries (%v)", err)
	default:
		t.Skipf("Node.js or the providers' libraries are not installed: npm ci --ignore-scripts "+
			"--prefix deploy/e2e/providers/testdata/libraries (%v)", err)
	}
}

// If the provider's own library refuses a request because of its signature, hookstart refuses it,
// too. -seed selects other requests, and -requests sets their number.
func TestNothingThatAProvidersLibraryRefuses(t *testing.T) {
	requireLibraries(t)
	random := rand.New(rand.NewPCG(*seed, 0))
	now, all := time.Now(), providers(t)
	requests := make([]*request, *count)
	for i := range requests {
		requests[i] = all[i%len(all)].make(random, now)
	}
	answers := ask(t, requests)
	var again []*request
	both, accepted := map[string]int{}, 0
	for i, r := range requests {
		verdict := r.verify(t, now)
		if !verdict.OK() {
			continue
		}
		accepted++
		switch answers[i] {
		case "accepted":
			both[r.Library]++
		case "signature":
			again = append(again, r)
		}
	}
	if len(again) > 0 {
		plain := make([]*request, len(again))
		for i, r := range again {
			plain[i] = r.plain()
		}
		for i, answer := range ask(t, plain) {
			if answer == "signature" {
				t.Errorf("%s refuses what is accepted here, at seed %d: %q\nbody %q, URL %s, "+
					"headers %q", again[i].Library, *seed, again[i].how, again[i].Body,
					again[i].URL, again[i].Headers)
			}
		}
	}
	for _, p := range all {
		if both[p.library] < *count/100 {
			t.Errorf("%s: only %d of the requests are right: the others prove little", p.library,
				both[p.library])
		}
	}
	t.Logf("%d requests at seed %d: %d accepted here, by the libraries too: %v; %d only after "+
		"their form was made plain", len(requests), *seed, accepted, both, len(again))
}
