package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// readAxe returns the axe-core script and reports whether it is installed. It is not part of the
// repository; npm ci in testdata/axe installs it.
func readAxe(t *testing.T) (script string, installed bool) {
	t.Helper()
	text, err := os.ReadFile("testdata/axe/node_modules/axe-core/axe.min.js")
	if err != nil &&
		slices.Contains(strings.Split(os.Getenv("HOOKSTART_TEST_REQUIRE"), ","), "axe") {
		t.Fatal("axe is required: npm ci --ignore-scripts --prefix deploy/e2e/testdata/axe")
	}
	return string(text), err == nil
}

// checkAccessibility checks the pages with the given paths, in light and dark colours, at the
// widths of a desktop and a phone: axe-core must find no violations. It also calls checkWidth and
// checkFilters for each page.
func checkAccessibility(t *testing.T, b *tab, paths []string) {
	t.Helper()
	axe, installed := readAxe(t)
	if !installed {
		t.Skip("axe is not installed: npm ci --ignore-scripts --prefix deploy/e2e/testdata/axe")
	}
	defer func(outer *testing.T) { b.t = outer }(b.t)
	b.t = t // report the browser's failures in this subtest
	for _, path := range paths {
		b.visit(path)
		b.wait(fragmentsAreThere)
		b.evaluate(`document.querySelectorAll("#refusals details").forEach((each) => { each.open = true }) ?? ""`)
		b.do(chromedp.Evaluate[chromedp.Void](axe))
		for _, look := range []struct {
			scheme string
			width  int64
		}{{"light", 1440}, {"dark", 1440}, {"light", 375}, {"dark", 375}} {
			setLook(b, look.scheme, look.width)
			found := violations(b)
			if b.evaluate(`{ const dialog = document.querySelector("dialog:not(:empty)"); dialog?.showModal(); String(dialog !== null) }`) == "true" {
				found += violations(b)
				b.evaluate(`document.querySelector("dialog:not(:empty)").close() ?? ""`)
			}
			if found != "" {
				t.Errorf("%s, %s, %d px wide:\n%s", path, look.scheme, look.width, found)
			}
			checkWidth(t, b, path, look.width)
			checkFilters(t, b, path, look.width)
		}
		for _, width := range []int64{320, 640, 768, 1024} {
			b.do(chromedp.EmulateViewport(width, 900))
			checkWidth(t, b, path, width)
		}
	}
}

// setLook emulates a colour scheme, "light" or "dark", and a window of the given width in pixels.
func setLook(b *tab, scheme string, width int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {
				Name:  "prefers-reduced-motion",
				Value: "reduce",
			},
		}})
	b.check(err)
	b.do(chromedp.EmulateViewport(width, 900))
}

// checkInAllLooks checks the current page in light and dark colours, at the widths of a desktop
// window and a phone: axe-core, whose script is axe, must find no violations, and the page must not
// be wider than the window. name describes the page's state in messages. If HOOKSTART_SCREENSHOTS
// is set to a folder, checkInAllLooks stores a screenshot of each look there, with a file name
// based on name.
func checkInAllLooks(t *testing.T, b *tab, axe, name string) {
	t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](axe))
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1440}, {"dark", 375}, {"light", 375}, {"dark", 1440}} {
		setLook(b, look.scheme, look.width)
		if found := violations(b); found != "" {
			t.Errorf("%s, %s, %d px wide:\n%s", name, look.scheme, look.width, found)
		}
		checkWidth(t, b, name, look.width)
		if folder := os.Getenv("HOOKSTART_SCREENSHOTS"); folder != "" {
			file := fmt.Sprintf("%s/%s-%s-%d.png", folder, name, look.scheme, look.width)
			b.check(os.WriteFile(file, (&camera{b, folder}).picture(look.width), 0o600))
		}
	}
}

// violations describes the violations that axe-core finds on the current page. It returns "" if
// there are none.
func violations(b *tab) string {
	b.t.Helper()
	return b.evaluate(`axe.run({ resultTypes: ["violations"] }).then((result) => result.violations.map((v) =>
		v.id + ": " + v.help + v.nodes.map((n) => "\n    " + n.html.slice(0, 200) + "\n      " + n.any.map((c) => c.message).join("; ")).join("")).join("\n"))`)
}

// checkWidth fails the test if the page needs horizontal scrolling. path and width, in pixels,
// describe the page in messages.
func checkWidth(t *testing.T, b *tab, path string, width int64) {
	t.Helper()
	if wider := b.evaluate(`String(document.documentElement.scrollWidth > innerWidth)`); wider !=
		"false" {
		t.Errorf("%s is wider than the window of %d px", path, width)
	}
}

// checkFilters fails the test if the link that clears a list's filters and the button to its left
// are not on the same line. path and width (in pixels) identify the page in the error message.
func checkFilters(t *testing.T, b *tab, path string, width int64) {
	t.Helper()
	if off := b.evaluate(`String([...document.querySelectorAll(".filters .clear")].map((link) => {
		const bottom = (element) => {
			const text = new Range();
			text.selectNodeContents(element);
			return text.getBoundingClientRect().bottom;
		};
		return bottom(link) - bottom(link.previousElementSibling);
	}).filter((pixels) => Math.abs(pixels) > 0.5))`); off != "" {
		t.Errorf("%s, %d px wide: what clears the filters is %s px below its button's line", path,
			width, off)
	}
}
