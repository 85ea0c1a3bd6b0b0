package local_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// checkAccessibility runs axe-core over pages: dark and light, on a phone and on a desk.
// axe-core is not part of the repository: npm ci in testdata/axe installs it.
func checkAccessibility(t *testing.T, b *tab, paths []string) {
	t.Helper()
	const installed = "testdata/axe/node_modules/axe-core/axe.min.js"
	axe, err := os.ReadFile(installed)
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("HOOKSTART_TEST_REQUIRE"), ","), "axe") {
			t.Fatal("axe is required: npm ci --ignore-scripts --prefix deploy/local/testdata/axe")
		}
		t.Skip("axe is not installed: npm ci --ignore-scripts --prefix deploy/local/testdata/axe")
	}
	defer func(outer *testing.T) { b.t = outer }(b.t)
	b.t = t // what fails in here fails here
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1440}, {"dark", 1440}, {"light", 375}, {"dark", 375}} {
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: look.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		b.check(err)
		b.do(chromedp.EmulateViewport(look.width, 900))
		for _, path := range paths {
			b.visit(path)
			b.wait(fragmentsAreThere)
			b.evaluate(`document.querySelectorAll("#refusals details").forEach((each) => { each.open = true }) ?? ""`)
			b.do(chromedp.Evaluate[chromedp.Void](string(axe)))
			violations := b.evaluate(`axe.run({ resultTypes: ["violations"] }).then((result) => result.violations.map((v) =>
				v.id + ": " + v.help + v.nodes.map((n) => "\n    " + n.html.slice(0, 200) + "\n      " + n.any.map((c) => c.message).join("; ")).join("")).join("\n"))`)
			if violations != "" {
				t.Errorf("%s, %s, %d px wide:\n%s", path, look.scheme, look.width, violations)
			}
			checkWidth(t, b, path, look.width)
			checkFilters(t, b, path, look.width)
		}
	}
	for _, width := range []int64{320, 640, 768, 1024} {
		b.do(chromedp.EmulateViewport(width, 900))
		for _, path := range paths {
			b.visit(path)
			b.wait(fragmentsAreThere)
			checkWidth(t, b, path, width)
		}
	}
}

// checkWidth finds what one would have to scroll sideways for.
func checkWidth(t *testing.T, b *tab, path string, width int64) {
	t.Helper()
	if wider := b.evaluate(`String(document.documentElement.scrollWidth > innerWidth)`); wider != "false" {
		t.Errorf("%s is wider than the window of %d px", path, width)
	}
}

// checkFilters finds a link beside the button of a list's filters whose text is not on the button's line.
func checkFilters(t *testing.T, b *tab, path string, width int64) {
	t.Helper()
	if off := b.evaluate(`String([...document.querySelectorAll(".filters .clear")].map((link) => {
		const bottom = (element) => { const text = new Range(); text.selectNodeContents(element); return text.getBoundingClientRect().bottom; };
		return bottom(link) - bottom(link.previousElementSibling);
	}).filter((pixels) => Math.abs(pixels) > 0.5))`); off != "" {
		t.Errorf("%s, %d px wide: what clears the filters is %s px below its button's line", path, width, off)
	}
}
