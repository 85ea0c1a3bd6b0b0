package ingress

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/sender"
)

// outputForms lists the forms in which senders expect an output. "" stands for all senders that
// require no particular form.
var outputForms = []sender.OutputFormat{
	"", "text", "twiml-message", "twiml-say", "json-or-no-content",
}

// writeOutput responds to a request with an output, as the ingress does for a node whose responses
// consist of the output, and reads the response as a client does.
func writeOutput(t *testing.T, output []byte, form sender.OutputFormat) (*http.Response, string) {
	t.Helper()
	h, _, _, _, _ := tryHandler(t, alwaysValid{})
	recorder := httptest.NewRecorder()
	d := &delivery{
		w: recorder,
		r: httptest.NewRequest(http.MethodPost, "/webhooks/wf", nil),
	}
	out := outcome{executionID: "the-id", waitResult: &waitResult{raw: true, form: form}}
	out.waitResult.Output = output
	h.respondOutput(d, out)
	if d.event.status != recorder.Code {
		t.Errorf("the log says %d, the response %d", d.event.status, recorder.Code)
	}
	// Write the response as it is sent over the network, and read it as a client does.
	var wire bytes.Buffer
	if err := recorder.Result().Write(&wire); err != nil {
		t.Fatalf("the response to %q cannot be sent: %v", output, err)
	}
	response, err := http.ReadResponse(bufio.NewReader(&wire), nil)
	if err != nil {
		t.Fatalf("the response to %q cannot be read: %v", output, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("the body of the response to %q: %v", output, err)
	}
	return response, string(body)
}

// If a handler written in Go returns an HTTPResponse, the sender receives exactly that response.
func TestHTTPResponse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 900_000)
	many := map[string]string{}
	for n := range 200 {
		many[fmt.Sprint("X-Header-", n)] = fmt.Sprint(n)
	}
	for name, c := range map[string]struct {
		output      any
		status      int
		contentType string
		header      map[string]string // header values; "" means that the header must be missing
		body        string
	}{
		"zero":    {runner.HTTPResponse{}, 200, "", nil, ""},
		"pointer": {&runner.HTTPResponse{Status: 201}, 201, "", nil, ""},
		"text": {
			runner.HTTPResponse{Status: 404, Body: "<none> & \x00\u2028"},
			404,
			"text/plain; charset=utf-8", nil, "<none> & \x00\u2028",
		},
		"empty text": {
			runner.HTTPResponse{Body: ""}, 200, "text/plain; charset=utf-8", nil, "",
		},
		"object": {
			runner.HTTPResponse{Status: 202, Body: map[string]int{"id": 1}},
			202,
			"application/json", nil, `{"id":1}`,
		},
		"false": {runner.HTTPResponse{Body: false}, 200, "application/json", nil, "false"},
		"zero as a body": {
			runner.HTTPResponse{Body: json.RawMessage("0")}, 200, "application/json", nil, "0",
		},
		"long": {
			runner.HTTPResponse{Body: long}, 200, "text/plain; charset=utf-8", nil, long,
		},
		"many headers": {runner.HTTPResponse{Headers: many}, 200, "", many, ""},
		"own type": {
			runner.HTTPResponse{
				Headers: map[string]string{"content-type": "text/html"}, Body: "<b>",
			}, 200, "text/html", nil, "<b>",
		},
		"own cache": {
			runner.HTTPResponse{Headers: map[string]string{"cache-control": "max-age=60"}},
			200,
			"",
			map[string]string{"Cache-Control": "max-age=60"},
			"",
		},
		"redirect": {
			runner.HTTPResponse{Status: 303, Headers: map[string]string{"Location": "/x"}},
			303, "",
			map[string]string{"Location": "/x", "Cache-Control": "no-store"},
			"",
		},
		"no content":    {runner.HTTPResponse{Status: 204, Body: "ignored"}, 204, "", nil, ""},
		"reset content": {runner.HTTPResponse{Status: 205, Body: "ignored"}, 205, "", nil, ""},
		"not modified":  {runner.HTTPResponse{Status: 304, Body: "ignored"}, 304, "", nil, ""},
		"unsent": {
			runner.HTTPResponse{Headers: map[string]string{
				"connection": "close", "Content-Length": "1", "Date": "never", "Trailer": "X",
				"transfer-encoding": "chunked", "Upgrade": "x", "Proxy-Connection": "x", "TE": "x",
				"hookstart-execution-id": "forged", "X-Content-Type-Options": "none",
				"set-cookie": "a=1", "X-Stays": "1",
			}, Body: "four"},
			200, "text/plain; charset=utf-8",
			map[string]string{
				"Connection": "", "Content-Length": "4", "Date": "", "Trailer": "", "Te": "",
				"Transfer-Encoding": "", "Upgrade": "", "Proxy-Connection": "", "Set-Cookie": "",
				"Hookstart-Execution-Id": "the-id", "X-Content-Type-Options": "nosniff",
				"X-Stays": "1",
			},
			"four",
		},
		"cookies": {
			runner.HTTPResponse{
				Headers: map[string]string{"Set-Cookie": "a=1"}, Cookies: true,
			}, 200, "", map[string]string{"Set-Cookie": "a=1"}, "",
		},
	} {
		output, err := json.Marshal(c.output)
		if err != nil {
			t.Fatal(err)
		}
		response, body := writeOutput(t, output, "")
		if response.StatusCode != c.status || body != c.body ||
			response.Header.Get("Content-Type") != c.contentType {
			t.Errorf("%s: %d, %q, %.100q", name, response.StatusCode,
				response.Header.Get("Content-Type"), body)
		}
		for header, value := range c.header {
			if got := response.Header.Get(header); got != value {
				t.Errorf("%s: %s is %q, want %q", name, header, got, value)
			}
		}
	}
	// JSON cannot represent a func. A handler that returns such a value therefore fails, as it does
	// with any output that cannot be encoded.
	if _, err := json.Marshal(runner.HTTPResponse{Body: func() {}}); err == nil {
		t.Error("a func became JSON")
	}
}

// If the http member of an output is invalid, the response is a 502 with the reason. Any other
// output is returned as usual.
func TestMalformedHTTP(t *testing.T) {
	t.Parallel()
	for _, http := range []string{
		`[]`, `7`, `"text"`, `true`, `null`, ` null `,
		`{"status":100}`, `{"status":600}`, `{"status":-200}`, `{"status":200.5}`,
		`{"status":"200"}`, `{"status":1e99}`, `{"stat":200}`, `{"cookies":1}`, `{"headers":[]}`,
		`{"headers":{"":"x"}}`, `{"headers":{"a b":"x"}}`, `{"headers":{"X":"a\nb"}}`,
		`{"headers":{"X":"\u0000"}}`, `{"headers":{"X":["a",1]}}`, `{"headers":{"X":{}}}`,
		`{"headers":{"X":null}}`, `{"headers":{"X":["a",null]}}`, `{"headers":{"X\r\nY":"x"}}`,
		`{"headers":{"Connection":"a\r\nb"}}`,
	} {
		response, body := writeOutput(t, []byte(`{"http":`+http+`}`), "")
		if response.StatusCode != 502 || !strings.Contains(body, `"run_failed"`) ||
			!strings.Contains(body, "http is not valid") {
			t.Errorf("%s: %d %s", http, response.StatusCode, body)
		}
	}
	for _, output := range []string{
		`{}`, `{"HTTP":{"status":201}}`, `{"http":{"status":201},"other":1}`,
		`[{"http":{"status":201}}]`, `"http"`, `null`, ` {"a" : [1]}`,
	} {
		response, body := writeOutput(t, []byte(output), "")
		if response.StatusCode != 200 || body != output {
			t.Errorf("%s: %d %s", output, response.StatusCode, body)
		}
	}
}

// FuzzOutput checks that every output becomes a response that a client can read. The same output
// must always result in the same response, and the response must not have headers that outputs
// cannot set.
func FuzzOutput(f *testing.F) {
	for _, seed := range []string{
		`{"http":{"status":201,"headers":{"location":"/1","X-A":["a","b"]},"body":{"id":1}}}`,
		`{"http":{"headers":{"x-a":"1","X-A":"2","X-a":"3"},"body":"text"}}`,
		`{"http":{"headers":{"Set-Cookie":"a=1","Connection":"close"},"cookies":true}}`,
		`{"http":{"headers":{"Content-Type":[],"Cache-Control":[]},"body":7}}`,
		`{"http":{"status":204,"body":"x"}}`, `{"http":null}`, `{"text":"hello"}`, `"a < b"`,
		`null`, ` [1] `, `"<Response/>"`, `{"http":{"headers":{"X":"é\t"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		if len(output) > 0 && !json.Valid(output) {
			return // package runner never reports such an output; from other runners it is ignored
		}
		for _, form := range outputForms {
			first, err := responseFromOutput(output, form)
			if second, again := responseFromOutput(output, form); !reflect.DeepEqual(first,
				second) ||
				(err == nil) != (again == nil) {
				t.Errorf("%s: %+v, then %+v", output, first, second)
			}
			response, body := writeOutput(t, output, form)
			if err != nil {
				if !errors.Is(err, errInvalidOutput) ||
					response.StatusCode != http.StatusBadGateway {
					t.Errorf("%s: %d after %v", output, response.StatusCode, err)
				}
				continue
			}
			if response.StatusCode != first.status || first.status < 200 || first.status > 599 ||
				body != string(first.body) {
				t.Errorf("%s: %d %q, of %+v", output, response.StatusCode, body, first)
			}
			if response.Header.Get("Hookstart-Execution-Id") != "the-id" ||
				len(response.Header["Content-Type"]) == 0 && body != "" ||
				response.ContentLength != int64(len(body)) && response.StatusCode != 304 {
				t.Errorf("%s: the headers %v", output, response.Header)
			}
			for name := range first.headers {
				if slices.Contains(ignoredOutputHeaders, name) {
					t.Errorf("%s sets %s", output, name)
				}
			}
		}
	})
}
