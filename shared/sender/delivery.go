package sender

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/hookstart/hookstart/shared/execution"
)

// idSource is one place of a delivery ID: one source, or several that are all needed.
type idSource struct {
	parts  []source
	absent []source // there must be nothing
	body   bool     // a part is in the body
}

// Delivery is a delivery ID out of the sender's own sources.
type Delivery struct {
	ID string // empty: the request has none
	// Derived: the ID is of the body, or a hash, and differs from the same text in a header. See execution.DerivedDelivery.
	Derived bool
}

// parseIDSource reads a source of a delivery ID. In the table, own, it may have several parts, joined by " + "; "!" is for what must be absent.
func parseIDSource(text string, own bool) (idSource, error) {
	texts := []string{text}
	if own {
		texts = strings.Split(text, " + ")
	}
	var id idSource
	for _, t := range texts {
		t, absent := strings.CutPrefix(t, "!")
		s, err := parseSource(t, own)
		if err != nil {
			return id, err
		}
		if absent && own {
			id.absent = append(id.absent, s)
			continue
		}
		id.parts = append(id.parts, s)
		id.body = id.body || s.kind == fromPointer || s.kind == fromForm
	}
	return id, nil
}

// maxSources bounds the sources that an operator sets.
const maxSources = 16

// DeliverySources says where the delivery IDs of a sender are, in order, in the words of the setting deliveryId. A
// preset's own source may have several parts, joined by " + ", and after a "!" one that must not be there. The error
// is a *ConfigError.
func DeliverySources(preset string, settings map[string]string) ([]string, error) {
	e, err := find(preset)
	if err != nil {
		return nil, err
	}
	texts, _ := e.deliveryTexts(settings)
	return texts, nil
}

// deliveryTexts are the entry's own sources, or those that an operator set in their place.
func (e *entry) deliveryTexts(settings map[string]string) (texts []string, own bool) {
	if set := settings[settingDeliveryID]; set != "" {
		texts = strings.Split(set, ",")
		for i := range texts {
			texts[i] = strings.TrimSpace(texts[i])
		}
		return texts, false
	}
	if header := settings["idHeader"]; header != "" { // of the preset hmac
		return []string{"header:" + header}, false
	}
	return e.Delivery, true
}

func (e *entry) deliverySources(settings map[string]string) ([]idSource, error) {
	texts, own := e.deliveryTexts(settings)
	if len(texts) > maxSources {
		return nil, &ConfigError{"settings." + settingDeliveryID, "has too many sources"}
	}
	var sources []idSource
	for _, text := range texts {
		s, err := parseIDSource(text, own)
		if err != nil {
			return nil, &ConfigError{"settings." + settingDeliveryID, err.Error()}
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// DeliveryInBody says that a delivery ID may be in the body.
func (s *Sender) DeliveryInBody() bool {
	for i := range s.delivery {
		if s.delivery[i].body {
			return true
		}
	}
	return false
}

// Delivery is the ID of the first source that has one. A long or unprintable one is hashed: the sender cannot help it.
func (s *Sender) Delivery(r *Request) Delivery {
	for i := range s.delivery {
		if text := s.delivery[i].value(r); text != "" {
			return delivery(text, s.delivery[i].body)
		}
	}
	return Delivery{}
}

func delivery(text string, body bool) Delivery {
	printable := utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f })
	if printable && len(text) <= execution.MaxDeliveryID {
		return Delivery{ID: text, Derived: body}
	}
	sum := sha256.Sum256([]byte(text))
	of := "sha256:"
	if !body { // the same text in the body is another ID
		of = "header-sha256:"
	}
	return Delivery{ID: of + hex.EncodeToString(sum[:]), Derived: true}
}

// value is the ID of a source: its value, or those of all its parts.
func (id *idSource) value(r *Request) string {
	for _, s := range id.absent {
		if s.present(r, true) {
			return ""
		}
	}
	var all []string
	for _, s := range id.parts {
		values := s.values(r)
		if len(values) == 0 {
			return ""
		}
		all = append(all, values...)
	}
	if len(all) == 1 {
		return all[0]
	}
	for i := range all { // so that no two lists are joined to the same text
		all[i] = joined.Replace(all[i])
	}
	return strings.Join(all, "|")
}

var joined = strings.NewReplacer("%", "%25", "|", "%7C")
