package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/hookstart/hookstart/executor/client/api"
)

// The audit page shows changes and their actors. It can be filtered with the keyboard alone, is
// paginated, and is accessible only to admins.
func TestAuditPage(t *testing.T) {
	t.Parallel()
	l := launchLocalWithLink(t)
	client := l.client()
	for n := range 40 {
		name := fmt.Sprintf("Name %d <b>&amp;", n)
		if _, err := client.PutWorkflow(t.Context(), "demo", api.PutWorkflow{
			AccountID: "demo",
			Name:      name,
			Triggers:  []api.PutTrigger{{NodeID: "webhook"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	started, err := client.RerunTrigger(t.Context(), "demo", "webhook")
	if err != nil {
		t.Fatal(err)
	}
	key, err := client.CreateKey(t.Context(), api.PutKey{Name: "CI of team A", Role: "editor"})
	if err != nil {
		t.Fatal(err)
	}

	b := openBrowser(t, l.executor)
	b.do(chromedp.Navigate(l.executor + "/sign-in"))
	b.write("#token", adminToken)
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.page("Overview")
	b.click(`nav a[href="/audit"]`)
	b.page("Audit")
	table := b.text("table", "session.sign-in")
	for _, want := range []string{
		"key.create", "execution.rerun", "Name 39 <b>&amp;", started.ExecutionID, "admin token",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the page does not say %q:\n%s", want, table)
		}
	}
	if html := b.evaluate(`document.documentElement.outerHTML`); strings.Contains(html,
		key.Secret) || strings.Contains(html, adminToken) {
		t.Error("the page shows a secret")
	}
	if n := b.evaluate(`String(document.querySelectorAll("tbody tr").length)`); n != "25" {
		t.Errorf("%s rows", n)
	}
	b.shoot("audit-first")
	b.click(`a[rel="next"]`)
	b.text("table", "account.create")

	// Using the keyboard, the operator types a name into the first field and presses Enter. The
	// focus stays in the field.
	b.visit("/audit")
	b.do(chromedp.Focus(chromedp.CSS(`[name="actor"]`)), chromedp.KeyEvent("nobody"+kb.Enter))
	b.text("main", "Nothing matches these filters.")
	b.do(chromedp.Focus(chromedp.CSS(`.clear`)), chromedp.KeyEvent(kb.Enter))
	b.text("table", "session.sign-in")
	b.do(chromedp.Focus(chromedp.CSS(`[name="account"]`)), chromedp.KeyEvent("demo"+kb.Enter))
	b.wait(`location.search.includes("account=demo") && !document.querySelector("table").innerText.includes("session.sign-in")`)
	b.contented()
	checkAccessibility(t, b, []string{"/audit", "/audit?actor=nobody"})

	other := openBrowser(t, l.executor)
	other.do(chromedp.Navigate(l.executor + "/sign-in"))
	other.write("#token", key.Secret)
	other.do(chromedp.Submit(chromedp.CSS("#token")))
	other.page("Overview")
	if n := other.evaluate(`String(document.querySelectorAll("nav a[href='/audit']").length)`); n !=
		"0" {
		t.Error("an editor is shown the way to the audit")
	}
	other.visit("/audit")
	other.page("Forbidden")
}

// shoot takes screenshots of the page in light and dark colours, and at desktop and phone widths,
// if HOOKSTART_SCREENSHOTS is set to a folder. name is the beginning of their file names.
func (b *tab) shoot(name string) {
	b.t.Helper()
	folder := os.Getenv("HOOKSTART_SCREENSHOTS")
	if folder == "" {
		return
	}
	c := &camera{b, folder}
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1440}, {"dark", 1440}, {"light", 375}} {
		c.look(look.scheme, look.width, windowHeight)
		b.check(os.WriteFile(filepath.Join(folder,
			fmt.Sprintf("%s-%s-%d.png", name, look.scheme, look.width)), c.picture(look.width),
			0o600))
	}
	c.look("light", 1440, windowHeight)
}
