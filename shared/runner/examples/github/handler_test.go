package main

import (
	"context"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

// Test values from GitHub's documentation.
const (
	secret    = "It's a Secret to Everybody"
	body      = "Hello, World!"
	signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
)

func TestVerify(t *testing.T) {
	if err := verify([]byte(secret), []byte(body), signature); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct{ secret, body, signature string }{
		"none":            {secret, body, ""},
		"another secret":  {secret + "!", body, signature},
		"another body":    {secret, body + "\n", signature},
		"another hash":    {secret, body, strings.Replace(signature, "sha256", "sha1", 1)},
		"no hex":          {secret, body, "sha256=x" + signature[8:]},
		"cut":             {secret, body, signature[:len(signature)-2]},
		"without sha256=": {secret, body, strings.TrimPrefix(signature, "sha256=")},
		"nothing after =": {secret, body, "sha256="},
	} {
		if verify([]byte(c.secret), []byte(c.body), c.signature) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The execution of a webhook with a valid signature succeeds. It fails if the signature is missing
// or belongs to another body.
func TestHandler(t *testing.T) {
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runner.Run(ctx, nc, runner.Options{Group: "github"}, newHandler([]byte(secret)))
	}()
	post := func(contentType, body, signature string) execution.Progress {
		return ingress.Await(t, ingress.Start(t, runnertest.Post{
			ContentType: contentType,
			Body:        body,
			Headers: execution.Values{
				"X-Hub-Signature-256": {signature},
				"X-Github-Event":      {"push"},
			},
		}))
	}
	if got := post("application/json", `{"ref": "another body"}`,
		signature); got.Status != execution.Failed ||
		!strings.Contains(got.Error, "is not that of this body") {
		t.Errorf("%+v", got)
	}
	if got := post("text/plain", body, signature); got.Status != execution.Succeeded ||
		string(got.Output) != `{"event":"push"}` {
		t.Errorf("%+v", got)
	}
	if got := post("text/plain", body, ""); got.Status != execution.Failed ||
		!strings.Contains(got.Error, "give the webhook a secret") {
		t.Errorf("%+v", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
