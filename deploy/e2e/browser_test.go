package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromiumNames are the names of suitable browsers. The first one that is installed is used.
var chromiumNames = []string{
	"chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
}

// findChromium returns the path of a browser. If there is none, it skips the test, or fails it if
// HOOKSTART_TEST_REQUIRE includes chromium.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range chromiumNames {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if slices.Contains(strings.Split(os.Getenv("HOOKSTART_TEST_REQUIRE"), ","), "chromium") {
		t.Fatal("chromium is required, and is not on the PATH")
	}
	t.Skip("chromium is not on the PATH")
	return ""
}

// tab is a browser tab. Its methods perform the actions of a user and check what the page shows.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string // URL of the console

	mu         sync.Mutex
	complaints []string // what the browser reported, such as a script that was blocked or failed
}

// openBrowser starts a separate browser with an empty profile. The returned tab records the errors
// that the browser reports, for example if a script is blocked or fails. The caller must call
// contented at the end, which fails the test if an error was recorded.
func openBrowser(t *testing.T, base string) *tab {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(findChromium(t)), chromedp.UserDataDir(browserFolder(t)),
		chromedp.DisableGPU, chromedp.WindowSize(1440, 900),
		chromedp.NoSandbox, // CI runs as root
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)

	b := &tab{t: t, ctx: ctx, base: base}
	// Run the first action here, with the context of the whole tab: the browser exits when the
	// context of its first action ends, and the context of a single step ends with the step.
	b.check(chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	go func() {
		_ = chromedp.Listen(ctx, b.recordComplaint) // until the browser is closed
	}()
	for _, permission := range []string{"clipboard-read", "clipboard-write"} {
		_, err := chromedp.CallBrowser(ctx, browser.SetPermission, browser.SetPermissionParams{
			Permission: &browser.PermissionDescriptor{Name: permission},
			Setting:    browser.PermissionSettingGranted,
			Origin:     base,
		})
		b.check(err)
	}
	return b
}

// browserFolder returns the path of an empty profile folder. The browser's child processes may
// still write to it after the browser has exited, so removing it may take more than one attempt.
func browserFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(os.TempDir(),
		"hookstart-browser-"+filepath.Base(t.TempDir())+"-"+time.Now().Format("150405.000000"))
	t.Cleanup(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for range 100 {
			if os.RemoveAll(dir) == nil {
				return
			}
			<-tick.C
		}
	})
	return dir
}

// recordComplaint records the event if it is an error that the browser reports, and ignores all
// other events.
func (b *tab) recordComplaint(event any) {
	var complaint string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		complaint = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			complaint += " " + e.ExceptionDetails.Exception.Description
		}
	case *log.EventEntryAdded:
		// The browser logs a refusal by the API as a network error. Ignore it, because the page
		// shows the refusal to the operator.
		if e.Entry.Level != log.EntryLevelError || e.Entry.Source == log.EntrySourceNetwork {
			return
		}
		complaint = e.Entry.Text
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, complaint)
}

// contented fails the test if the browser has reported an error.
func (b *tab) contented() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.complaints {
		b.t.Errorf("the browser: %s", complaint)
	}
}

// stepLimit is the maximum duration of one step in the browser. Without it, some steps would block
// until the whole test is killed, for example a navigation that the page interrupts, or a wait for
// an element that never appears.
const stepLimit = time.Minute

// check fails the test if err is not nil. The message contains the address and the text of the
// page.
func (b *tab) check(err error) {
	b.t.Helper()
	if err == nil {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	where, _ := chromedp.Run(ctx, chromedp.Location())
	text, asking := chromedp.Run(ctx,
		chromedp.Evaluate[string](`document.body.innerText.slice(0, 3000)`))
	if asking != nil {
		text = "(the page does not tell: " + asking.Error() + ")"
	}
	b.t.Fatalf("%v\nat %s:\n%s", err, where, text)
}

// do performs the steps one after another. The test fails if a step fails or takes longer than
// stepLimit.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(b.ctx, stepLimit)
		err := chromedp.Do(ctx, step)
		for err != nil && strings.Contains(err.Error(), "Could not find node with given id") &&
			ctx.Err() == nil {
			// The page replaced a fragment after the step had found a node in it and before it used
			// the node, so try again.
			err = chromedp.Do(ctx, step)
		}
		cancel()
		b.check(err)
	}
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can always be marshaled
	}
	return string(quoted)
}

// visit opens a page and waits until its scripts are running.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base+path), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
}

func (b *tab) click(selector string) { b.t.Helper(); b.do(chromedp.Click(chromedp.CSS(selector))) }

func (b *tab) see(selector string) {
	b.t.Helper()
	b.do(chromedp.WaitVisible(chromedp.CSS(selector)))
}

func (b *tab) write(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// wait waits until a JavaScript expression is true. It ignores errors of the expression, because
// the browser may be leaving the page.
func (b *tab) wait(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && is {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.check(fmt.Errorf("it does not come to: %s (%w)", expression, cmp.Or(err, ctx.Err())))
		}
	}
}

// text waits until an element's text contains part, and returns the whole text.
func (b *tab) text(selector, part string) string {
	b.t.Helper()
	element := `document.querySelector(` + quote(selector) + `)`
	b.wait(element + `?.innerText.includes(` + quote(part) + `)`)
	return b.evaluate(element + `?.innerText ?? ""`) // the element may just have been replaced
}

// fragmentsAreThere is a JavaScript expression that is true once all separately fetched parts of
// the page have arrived.
const fragmentsAreThere = `[...document.querySelectorAll("[data-fragment]")].every((part) => part.childElementCount > 0 || part.id === "refusals")`

// unfold is a JavaScript expression that opens every collapsible part of the page.
const unfold = `for (const part of document.querySelectorAll("details")) part.open = true; ""`

// page waits until a page with the given heading is shown and its scripts are running.
func (b *tab) page(heading string) {
	b.t.Helper()
	b.wait(`"ready" in document.documentElement.dataset && document.querySelector("h1").innerText.includes(` + quote(heading) + `)`)
}

func (b *tab) evaluate(expression string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepLimit)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
	b.check(err)
	return text
}
