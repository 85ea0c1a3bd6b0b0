package e2e

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/runner"
)

// A page that is left open on an execution updates itself until the execution has ended.
func TestAnExecutionsPageFollowsIt(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocalWithLink(t)
	url := makeQueue(t, l, "later")
	b := openBrowser(t, l.executor)
	b.do(chromedp.Navigate(l.Await(`\nConsole +(\S+)`)))
	b.page("Overview")
	open := func(body string) {
		t.Helper()
		a, err := post(t.Context(), url, map[string]string{"Content-Type": "application/json"},
			strings.NewReader(body))
		if err != nil || a.Status != 200 {
			t.Fatalf("POST: %+v, %v", a, err)
		}
		b.visit("/executions/" + a.ExecutionID)
		b.do(chromedp.MouseEvent("mouseMoved", 1, 1)) // elements under the pointer would not move
	}
	open(`{"ok":1.10}`)
	b.text("#steps", "for a runner of the queue later")

	goOn := make(chan struct{})
	nc, err := nats.Connect(l.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runner.Run(ctx, nc, runner.Options{Queue: "later", Group: "test"}, func(
			ctx context.Context, e runner.Execution,
		) (any, error) {
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			if bytes.Contains(e.Input, []byte("fail")) {
				return nil, runner.Permanent(errors.New("on purpose"))
			}
			return map[string]int{"answer": 42}, nil
		})
	}()
	b.text("#steps", "for the runner's result")
	goOn <- struct{}{}
	b.text("#status", "Succeeded")
	b.text("#output-tree", "42")
	b.click("#output-raw-tab")
	b.text("#output-text", `{"answer":42}`)
	b.wait(`!document.querySelector("[data-fragment]")`)

	open(`"fail"`)
	b.text("#steps", "for the runner's result")
	goOn <- struct{}{}
	b.text("#failure", "on purpose")
	b.see("#again #retry")
	b.contented()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
