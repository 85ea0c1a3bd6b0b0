package sender_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/sender"
)

var update = flag.Bool("update", false, "write the pages of deploy/docs/senders")

const pages = "../../deploy/docs/senders"

// The folder deploy/docs/senders contains exactly one page for each preset and an index, all as
// generated from presets.json by "make generate".
func TestPages(t *testing.T) {
	if _, err := os.Stat(filepath.Dir(pages)); err != nil {
		t.Skip("there is no deploy/docs here")
	}
	want := map[string]string{"README.md": index()}
	for _, p := range sender.Presets() {
		want[p.ID+".md"] = page(p)
	}
	if *update {
		if err := os.MkdirAll(pages, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(pages, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	have, err := filepath.Glob(pages + "/*.md")
	if err != nil || len(have) != len(want) {
		t.Errorf("%d pages, want %d: run make generate", len(have), len(want))
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(pages, name)); err != nil ||
			!bytes.Equal(got, []byte(text)) {
			t.Errorf("%s is not what the table says (%v): run make generate", name, err)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := fmt.Sprintf("[%d presets, ", len(sender.Presets())); !strings.Contains(string(readme), n) {
		t.Errorf("the README does not say %q", n)
	}
}

const made = "<!-- Made from shared/sender/presets.json by make generate. -->\n\n"

func index() string {
	var b strings.Builder
	b.WriteString(made + `# Senders
A trigger node may have a *sender*: what is known of who calls it. With one, a request is verified before anything is counted or recorded,
delivery IDs are found where the provider puts them, its handshakes are answered, and answers are as it needs them. Without one, the token in the
URL is the protection, and a runner can verify a signature itself.

Set it in the console (the trigger's page), with ` + "`hookstart sender set`" + `, or with ` + "`PUT /api/v1/workflows/{id}/triggers/{nodeId}/sender`" + `.
What is not verified is answered 401 ` + "`signature_missing`, `signature_invalid` or `signature_expired`" + `, leaves no record, and uses up no delivery ID and no rate limit.

| preset | for | verifies | handshakes |
|---|---|---|---|
`)
	for _, p := range sender.Presets() {
		verifies := "yes"
		if !p.Verifies {
			verifies = "no"
		}
		fmt.Fprintf(&b, "| [`%s`](%s.md) | %s | %s | %s |\n", p.ID, p.ID, p.Title, verifies,
			strings.Join(p.Handshakes, "; "))
	}
	b.WriteString(`
## Secrets
Up to four secrets of a sender work at the same time. To rotate without a refused delivery: add the new one, give it to the provider, and end the
old one. Secrets are sealed at rest, so ` + "`--secrets-key-file`" + ` is needed, and are never shown again.

## What every preset takes
- ` + "`deliveryId`" + `: a list, separated by commas, of ` + "`header:Name`, `ptr:/json/pointer` and `form:field`" + `, in place of the preset's own sources. The first one
  that is there and not empty is the delivery ID. An ID of more than 255 bytes is hashed. One that is signed, in a signed body or in a
  header that is part of the signed message, is the only ID of a request that has it. Before one that is not signed come ` + "`X-Webhook-Delivery-Id` and `X-Partner-Delivery`" + `.
- Pointers look into the JSON of the body; of a form with a field ` + "`payload`" + `, into the JSON in that.
- Where a time is signed, ` + "`toleranceSeconds`" + `: how far it may be from now, before or after; 300 by default, 0 for any.

## A delivery that was sent again by hand
Most providers send the same delivery ID when somebody presses "Redeliver". Within the dedup window (24 hours by default) that is recognised as a
repeat: it is answered with the first execution and starts nothing. To run it again, use Run again on the execution's page.
`)
	return b.String()
}

func page(p sender.Preset) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s# %s\nPreset `%s`", made, p.Title, p.ID)
	for _, alias := range p.Aliases {
		fmt.Fprintf(&b, ", also `%s`", alias)
	}
	fmt.Fprintf(&b,
		". The provider's own page: <%s>.\n\n## Connect it\n*Here* is the trigger's page in the "+
			"console, or `hookstart sender set WORKFLOW --preset %s", p.DocsURL, p.ID)
	if p.Secret != nil {
		b.WriteString(" --secret-file FILE")
	}
	b.WriteString("`.")
	if p.Secret == nil || !p.Secret.Public {
		b.WriteString(" `hookstart trigger send WORKFLOW` tries it.")
	}
	b.WriteString("\n\n")
	for i, step := range p.SetupSteps {
		fmt.Fprintf(&b, "%d. %s\n", i+1, step)
	}
	b.WriteString("\n## What it does\n")
	if p.Verifies {
		kind := "Secret"
		if p.Secret.Public {
			kind = "Public key"
		}
		fmt.Fprintf(&b, "- %s: %s.\n", kind, p.Secret.Label)
	} else {
		b.WriteString("- Verifies nothing: the token in the URL is the protection.\n")
	}
	list := func(title string, items []string) {
		if len(items) > 0 {
			fmt.Fprintf(&b, "- %s: `%s`.\n", title, strings.Join(items, "`, else `"))
		}
	}
	list("Delivery ID", p.DeliveryIDSources)
	if len(p.DeliveryIDSources) > 0 && len(p.SignedDeliveryIDSources) == 0 {
		b.WriteString("- `X-Webhook-Delivery-Id` comes first if the request has it: " +
			"[which ID counts](../delivery-ids.md).\n")
	}
	if len(p.DeliveryIDSources) == 0 {
		b.WriteString("- Delivery ID: none of its own; the headers that every node knows count.\n")
	}
	if len(p.SignedDeliveryIDSources) > 0 {
		fmt.Fprintf(&b,
			"- The delivery ID in `%s` is signed. A request that has it has no other ID: "+
				"`X-Webhook-Delivery-Id` beside it changes nothing.\n",
			strings.Join(p.SignedDeliveryIDSources, "`, `"))
	}
	for _, h := range p.Handshakes {
		fmt.Fprintf(&b, "- Handshake: %s.\n", h)
	}
	if p.NeedsPublicURL {
		b.WriteString("- Needs `--public-url` at the ingress.\n")
	}
	b.WriteString("\n## Settings\n| setting | meaning | default |\n|---|---|---|\n")
	for _, s := range p.Settings {
		meaning := s.Label
		if s.Required {
			meaning += " (required)"
		}
		if s.Secret {
			meaning += " (never shown again)"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, strings.ReplaceAll(meaning, "|", "\\|"),
			s.Default)
	}
	if len(p.Notes) > 0 {
		b.WriteString("\n## Good to know\n")
		for _, n := range p.Notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	return b.String()
}
