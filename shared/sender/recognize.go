package sender

import (
	"fmt"
	"net/textproto"
	"regexp"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
)

// headerPlaceholderPattern matches a placeholder for a header in a message template: {header:Name}.
var headerPlaceholderPattern = regexp.MustCompile(`\{(header:[^}]+)\}`)

// presetByUniqueHeader maps each header that only one preset uses to that preset.
// X-Hub-Signature-256, for example, is missing, because several presets use it.
var presetByUniqueHeader = sync.OnceValue(func() map[string]*presetEntry {
	owners := map[string][]*presetEntry{}
	for _, e := range presetTable() {
		named := map[string]bool{}
		note := func(sources ...string) {
			for _, s := range sources {
				if name, ok := strings.CutPrefix(s, "header:"); ok {
					named[textproto.CanonicalMIMEHeaderKey(name)] = true
				}
			}
		}
		note(e.UnsignedDeliveryIDSources...)
		for i := range e.VerificationMethods {
			m := &e.VerificationMethods[i]
			note(m.Signature)
			note(m.DeliveryIDSources...)
			if m.Time != nil {
				note(m.Time.Source)
			}
			for _, found := range headerPlaceholderPattern.FindAllStringSubmatch(m.Message, -1) {
				note(found[1])
			}
		}
		for name := range named {
			owners[name] = append(owners[name], e)
		}
	}
	unique := map[string]*presetEntry{}
	for name, all := range owners {
		if len(all) == 1 && name != "Authorization" {
			unique[name] = all[0]
		}
	}
	return unique
})

// Recognize returns the preset that a request seems to be from, judging by the headers that only
// one preset uses. It verifies nothing: anybody can send these headers. ok is false if no preset
// matches, or if several match equally well.
func Recognize(r *Request) (p Preset, ok bool) {
	if e, _ := recognize(r); e != nil {
		return e.preset(), true
	}
	return Preset{}, false
}

// recognize is like Recognize, but also returns one of the headers that identify the preset.
func recognize(r *Request) (best *presetEntry, header string) {
	found := map[*presetEntry]int{}
	seen := map[*presetEntry]string{}
	for name := range r.Header {
		if e := presetByUniqueHeader()[name]; e != nil {
			found[e]++
			if seen[e] == "" || name < seen[e] {
				seen[e] = name
			}
		}
	}
	tie := false
	for e, n := range found {
		switch {
		case best == nil || n > found[best]:
			best, tie = e, false
		case n == found[best]:
			tie = true
		}
	}
	if tie {
		return nil, ""
	}
	return best, seen[best]
}

// IsURLVerification reports whether a request is a url_verification, with which Slack and some
// other providers check a webhook URL. Only a node with a sender responds to it.
func IsURLVerification(r *Request) bool {
	if !r.KnownJSON {
		return false
	}
	found := gjson.GetManyBytes(r.Body, "type", "challenge")
	return found[0].Str == "url_verification" && found[1].Type == gjson.String
}

// likelySenderHint checks whether a refused request seems to come from a provider other than that
// of the node's sender. If so, it returns a hint to add to the error of the refusal, otherwise "".
func (s *Sender) likelySenderHint(r *Request) string {
	other, header := recognize(r)
	if other == nil || other == s.entry {
		return ""
	}
	return fmt.Sprintf("; it looks like a request of %s (%s): is that the node's sender?",
		other.Title, header)
}
