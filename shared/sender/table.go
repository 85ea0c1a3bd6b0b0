package sender

import (
	"bytes"
	_ "embed" // the table
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed presets.json
var presetsJSON []byte

// Preset describes one preset of the built-in table of senders to operators.
type Preset struct {
	// ID is the name of the preset in a Config.
	ID string
	// Aliases holds other names that a Config may use instead of ID.
	Aliases []string
	// Title is the provider's display name.
	Title   string
	DocsURL string // URL of the provider's documentation
	// Verifies reports whether requests are verified with a secret or a public key.
	Verifies bool
	Secret   *SecretInfo // nil means that the preset has no secret
	// Settings holds the settings that a Config of this preset may have.
	Settings                []Setting
	SetupSteps              []string // the steps to set up the webhook, in the provider's terms
	DeliveryIDSources       []string // the sources of the delivery ID, in order; signed ones first
	SignedDeliveryIDSources []string // the elements of DeliveryIDSources that are signed
	Handshakes              []string // the titles of the handshakes
	Notes                   []string // notes for operators, including unconfirmed facts
	// NeedsPublicURL reports whether the URL is signed. The ingress then needs its public URL.
	NeedsPublicURL bool
}

// SecretInfo describes the secret of a preset.
type SecretInfo struct {
	// Label is the name of the secret on the provider's pages.
	Label    string
	Public   bool // whether it is a public key, which may be shown
	Choose   bool // whether the operator chooses it and enters it at the provider
	Captured bool // whether the provider sends it, so that a Config may lack it at first
	Max      int  // maximum number of secrets that are valid at the same time
}

// Setting describes one setting of a preset: its name, its meaning and its valid values.
type Setting struct {
	// Name is the key of the setting in Config.Settings.
	Name string `json:"name"`
	// Label describes the setting and its values to operators.
	Label string `json:"label"`
	// Required means that a Config without the setting is refused.
	Required bool `json:"required"`
	Secret   bool `json:"secret"` // whether the setting's value is never shown again
	// Default is the value if a Config does not contain the setting. "" means none.
	Default string   `json:"default"`
	Values  []string `json:"values"` // the valid values; empty means that any value is valid
}

// presetEntry is one entry of presets.json.
type presetEntry struct {
	ID                  string       `json:"id"`
	Aliases             []string     `json:"aliases"`
	Title               string       `json:"title"`
	Docs                string       `json:"docs"`
	Secret              *secretSpec  `json:"secret"`
	Settings            []Setting    `json:"settings"`
	Setup               []string     `json:"setup"`
	VerificationMethods []methodSpec `json:"verify"`
	// GeneralKind is "hmac" or "header" if the method is built from the settings. "" means that the
	// table itself contains the methods.
	GeneralKind string `json:"general"`
	// UnsignedDeliveryIDSources holds the sources of delivery IDs that no signature covers, in
	// order.
	UnsignedDeliveryIDSources []string           `json:"delivery"`
	Handshakes                []handshakeSpec    `json:"handshakes"`
	Responses                 []responseSpec     `json:"responses"`
	Outputs                   []outputFormatSpec `json:"outputs"`
	SecretHeaders             []string           `json:"drop"`
	GivesUpOn4xx              bool               `json:"givesUpOn4xx"`
	Notes                     []string           `json:"notes"`
}

type secretSpec struct {
	Label            string `json:"label"`
	Public           bool   `json:"public"`
	ChosenByOperator bool   `json:"choose"`
	CaptureSource    string `json:"captured"` // source of a secret that the provider sends
	// OtherKeyPrefixes lists the prefixes of keys of the same provider that cannot be the secret,
	// but that people paste by mistake.
	OtherKeyPrefixes []string `json:"not"`
}

// otherKeyPrefixes returns the prefixes of keys that cannot be the secret, or nil if there is no
// secret. See secretSpec.OtherKeyPrefixes.
func (e *presetEntry) otherKeyPrefixes() []string {
	if e.Secret == nil {
		return nil
	}
	return e.Secret.OtherKeyPrefixes
}

func (e *presetEntry) capturesSecret() bool {
	return e.Secret != nil && e.Secret.CaptureSource != ""
}

// presetTable returns the built-in table of senders. A test ensures that it can be parsed.
var presetTable = sync.OnceValue(func() []*presetEntry {
	entries, err := parsePresetTable(presetsJSON)
	if err != nil {
		panic(err)
	}
	return entries
})

// parsePresetTable parses a table of senders. Unknown members and duplicate IDs are errors.
func parsePresetTable(text []byte) ([]*presetEntry, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var entries []*presetEntry
	if err := decoder.Decode(&entries); err != nil {
		return nil, fmt.Errorf("presets: %w", err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		for _, id := range append([]string{e.ID}, e.Aliases...) {
			if id == "" || seen[id] {
				return nil, fmt.Errorf("presets: the ID %q is empty or there twice", id)
			}
			seen[id] = true
		}
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("preset %s: %w", e.ID, err)
		}
	}
	return entries, nil
}

// check returns an error if the entry is incomplete or has invalid values, or if it declares a
// delivery ID as signed that the signature does not cover.
func (e *presetEntry) check() error {
	verifies := len(e.VerificationMethods) > 0 || e.GeneralKind != ""
	switch {
	case e.Title == "" || e.Docs == "" || len(e.Setup) == 0:
		return errors.New("title, docs and setup are required")
	case verifies != (e.Secret != nil):
		return errors.New("a preset has a secret if and only if it verifies requests")
	case e.Secret != nil && e.Secret.Label == "":
		return errors.New("the secret needs a label")
	}
	for i := range e.VerificationMethods {
		m, err := e.VerificationMethods[i].compile(map[string]string{"user": "user"})
		if err != nil {
			return err
		}
		if err := m.checkDeliveryIDSources(e.VerificationMethods[i].DeliveryIDSources); err != nil {
			return err
		}
	}
	for _, s := range e.UnsignedDeliveryIDSources {
		if _, err := parseDeliveryIDSource(s, true); err != nil {
			return err
		}
	}
	settings := map[string]string{}
	for _, s := range e.Settings {
		settings[s.Name] = s.Default
	}
	if _, err := e.compileHandshakes(settings); err != nil {
		return err
	}
	if _, err := e.compileResponses(); err != nil {
		return err
	}
	_, err := e.compileOutputFormats()
	return err
}

// checkDeliveryIDSources refuses a source of delivery IDs that the method's signature does not
// cover.
func (m *method) checkDeliveryIDSources(texts []string) error {
	for _, text := range texts {
		id, err := parseDeliveryIDSource(text, true)
		if err != nil {
			return err
		}
		if !m.coversID(&id) {
			return fmt.Errorf("the delivery ID in %s is not signed by this method: name it "+
				"beside the methods", text)
		}
	}
	return nil
}

// findEntry returns the entry with the given ID or alias. Its error is a *ConfigError.
func findEntry(id string) (*presetEntry, error) {
	for _, e := range presetTable() {
		if e.ID == id || slices.Contains(e.Aliases, id) {
			return e, nil
		}
	}
	return nil, &ConfigError{"preset", "there is no such preset"}
}

// allSettings returns all settings that a Config may have, in this order: the preset's own;
// toleranceSeconds, if requests contain a time; and deliveryId, which every preset has.
func (e *presetEntry) allSettings() []Setting {
	all := slices.Clone(e.Settings)
	if e.checksTime() {
		all = append(all, Setting{
			Name: settingTolerance, Default: fmt.Sprint(defaultToleranceSeconds),
			Label: "Seconds that the signed time may differ from now, before or after; 0: any",
		})
	}
	return append(all, Setting{
		Name: settingDeliveryID,
		Label: "Where the delivery ID is, in place of the preset's own sources: a list, " +
			"separated by commas, of header:Name, ptr:/json/pointer and form:field",
	})
}

func (e *presetEntry) checksTime() bool {
	return e.GeneralKind == generalPresetHMAC || slices.ContainsFunc(e.VerificationMethods,
		func(m methodSpec) bool {
			return m.Time != nil
		})
}

// Presets returns all presets, in the order of the built-in table.
func Presets() []Preset {
	entries := presetTable()
	presets := make([]Preset, len(entries))
	for i, e := range entries {
		presets[i] = e.preset()
	}
	return presets
}

// LookupPreset returns the preset with the given ID or alias, and reports whether there is one.
func LookupPreset(id string) (Preset, bool) {
	e, err := findEntry(id)
	if err != nil {
		return Preset{}, false
	}
	return e.preset(), true
}

func (e *presetEntry) preset() Preset {
	p := Preset{
		ID: e.ID, Aliases: e.Aliases, Title: e.Title, DocsURL: e.Docs, Verifies: e.Secret != nil,
		Settings: e.allSettings(), SetupSteps: e.Setup,
		DeliveryIDSources: e.builtInDeliveryIDSources(), Notes: e.notes(),
	}
	signed := len(p.DeliveryIDSources) - len(e.UnsignedDeliveryIDSources)
	p.SignedDeliveryIDSources = p.DeliveryIDSources[:signed]
	if e.Secret != nil {
		p.Secret = &SecretInfo{
			Label:    e.Secret.Label,
			Public:   e.Secret.Public,
			Choose:   e.Secret.ChosenByOperator,
			Captured: e.capturesSecret(),
			Max:      MaxSecrets,
		}
	}
	for _, h := range e.Handshakes {
		p.Handshakes = append(p.Handshakes, h.Title)
	}
	p.NeedsPublicURL = slices.ContainsFunc(e.VerificationMethods, func(m methodSpec) bool {
		return m.Scheme == schemeTwilio || strings.Contains(m.Message, "{url}")
	})
	return p
}

// IsPublicKey reports whether a secret of the preset is a public key, which may be shown.
func (p *Preset) IsPublicKey(secret string) bool {
	e, err := findEntry(p.ID)
	if err != nil || e.Secret == nil {
		return false
	}
	return e.Secret.Public || strings.HasPrefix(secret, publicKeyPrefix) &&
		slices.ContainsFunc(e.VerificationMethods, func(m methodSpec) bool {
			return m.KeyFormat == "whpk"
		})
}

// notes returns the entry's notes. If the signature does not cover the delivery ID, it appends a
// note about the consequences.
func (e *presetEntry) notes() []string {
	signs := slices.ContainsFunc(e.VerificationMethods, func(m methodSpec) bool {
		return m.Scheme != schemeStatic && m.Scheme != schemeBasic
	})
	places := strings.Join(e.UnsignedDeliveryIDSources, " and ")
	switch {
	case len(e.VerificationMethods) > 0 && places != "":
	case signs && len(e.builtInDeliveryIDSources()) == 0:
		places = "a header"
	default:
		return e.Notes
	}
	return append(slices.Clone(e.Notes), fmt.Sprintf(unsignedDeliveryIDNote, places))
}

// unsignedDeliveryIDNote is the note for operators about a delivery ID that the signature does not
// cover. %s stands for the places that may contain the ID.
const unsignedDeliveryIDNote = "The delivery ID in %s is not signed: whoever has seen one " +
	"request can send " +
	"it once more under another ID, which starts another execution, and can use up the ID of a " +
	"delivery that is still to come. Use HTTPS, and keep the URL's token secret."

// wwwAuthenticateValue returns the value of the WWW-Authenticate header. The presets bearer and
// basic use the standard schemes. For all others, the value contains the preset's ID, which needs
// no escaping.
func (e *presetEntry) wwwAuthenticateValue() string {
	switch e.ID {
	case "bearer":
		return `Bearer realm="webhook"`
	case "basic":
		return `Basic realm="webhook", charset="UTF-8"`
	default:
		return `Webhook-Signature sender="` + e.ID + `"`
	}
}
