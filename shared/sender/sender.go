// Package sender handles what differs between providers: how they sign requests, where they put the
// delivery ID, with which handshakes they check a URL, and which responses they expect. Each
// provider is an entry of one built-in table, presets.json; the code is the same for all of them.
//
// The package does no I/O: it receives a request as a value and the current time, and returns a
// verdict. No error, reason or response contains a secret or an expected signature.
package sender

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/webhook"
)

// MaxSecrets is the maximum number of unexpired secrets of one sender.
const MaxSecrets = 4

// Config is the sender of one trigger node as configured by an operator.
type Config struct {
	Preset   string            // an ID or an alias of one of Presets
	Secrets  []Secret          // in plain text, newest first
	Settings map[string]string // keyed by Setting.Name
}

// Secret is one secret of a sender, in plain text.
type Secret struct {
	ID        string    // the caller's ID for the secret; Verdict.SecretID returns it
	Text      string    // as an operator pasted it
	ExpiresAt time.Time // zero means never
}

// ConfigError explains why a Config is invalid. It is for the operator who set it, and quotes no
// secret.
type ConfigError struct {
	Field  string // preset, secrets, or settings.NAME
	Detail string // what is wrong and what to do
}

// Error returns the field and the detail.
func (e *ConfigError) Error() string { return e.Field + ": " + e.Detail }

// Verdict is the result of verifying a request.
type Verdict struct {
	// Code is "" if the request is from the sender; otherwise it is CodeSignatureMissing,
	// CodeSignatureInvalid or CodeSignatureExpired.
	Code webhook.Code
	// Reason explains the code to the node's operators. It is never sent to the caller.
	Reason string
	// SecretID is the ID of the secret that verified the request.
	SecretID string

	methodNumber int // 1 + the index of the method that verified the request; 0 means none
}

// OK reports whether the request is from the sender.
func (v Verdict) OK() bool { return v.Code == "" }

// Sender verifies and interprets the requests of one trigger node. It is immutable and safe for
// concurrent use.
type Sender struct {
	entry             *presetEntry
	methods           []method
	keys              []verificationKey
	deliveryIDSources []deliveryIDSource
	handshakes        []handshake
	responses         []conditionalResponse
	outputFormats     []conditionalOutputFormat
	secretHeaders     []string
	wwwAuthenticate   string
	tolerance         time.Duration // 0 means that the time is not checked
}

// Compile returns the sender for a Config, or a *ConfigError.
func Compile(c Config) (*Sender, error) {
	s, settings, err := newWithoutSecrets(c)
	if err != nil {
		return nil, err
	}
	if err := s.parseSecrets(c.Secrets); err != nil {
		return nil, err
	}
	if s.handshakes, err = s.entry.compileHandshakes(settings); err != nil {
		return nil, err
	}
	if s.responses, err = s.entry.compileResponses(); err != nil {
		return nil, err
	}
	s.outputFormats, err = s.entry.compileOutputFormats()
	return s, err
}

// newWithoutSecrets returns a sender that has its methods and the sources of its delivery IDs, but
// no secrets. settings holds the validated settings of c, including defaults.
func newWithoutSecrets(c Config) (s *Sender, settings map[string]string, err error) {
	e, err := findEntry(c.Preset)
	if err != nil {
		return nil, nil, err
	}
	if settings, err = e.resolveSettings(c.Settings); err != nil {
		return nil, nil, err
	}
	s = &Sender{
		entry: e, secretHeaders: canonicalHeaderNames(e.SecretHeaders),
		wwwAuthenticate: e.wwwAuthenticateValue(),
	}
	if s.tolerance, err = parseTolerance(settings[settingTolerance]); err != nil {
		return nil, nil, err
	}
	if err := s.compileMethods(e, settings); err != nil {
		return nil, nil, err
	}
	if s.deliveryIDSources, err = e.compileDeliveryIDSources(settings, s.methods); err != nil {
		return nil, nil, err
	}
	s.deliveryIDSources = withoutSecretSources(s.deliveryIDSources, s.secretHeaders)
	return s, settings, nil
}

func (s *Sender) compileMethods(e *presetEntry, settings map[string]string) error {
	specs, drop, err := e.methodSpecs(settings)
	if err != nil {
		return err
	}
	s.secretHeaders = append(s.secretHeaders, drop...)
	for i := range specs {
		if !specs[i].appliesTo(settings) {
			continue
		}
		m, err := specs[i].compile(settings)
		if err != nil {
			return err
		}
		if m.scheme == schemeBasic && strings.Contains(m.user, ":") {
			return &ConfigError{"settings.user", "cannot contain a colon: it ends the user's name"}
		}
		s.methods = append(s.methods, m)
	}
	return nil
}

// parseSecrets parses every secret for every method that can use it. It returns an error if there
// is a secret that no method can use.
func (s *Sender) parseSecrets(secrets []Secret) error {
	switch {
	case len(s.methods) == 0 && len(secrets) > 0:
		return &ConfigError{"secrets", "this preset verifies nothing, so it has no secret"}
	case len(s.methods) > 0 && len(secrets) == 0 && !s.entry.capturesSecret():
		return &ConfigError{
			"secrets", "this preset verifies, so it needs a secret: " + s.entry.Secret.Label,
		}
	}
	for _, secret := range secrets {
		if err := checkSecret(secret.Text); err != nil {
			return err
		}
		for _, other := range s.entry.otherKeyPrefixes() {
			if strings.HasPrefix(secret.Text, other) {
				return &ConfigError{
					"secrets",
					fmt.Sprintf("what begins with %s is another key of %s, which verifies "+
						"nothing: give it the %s", other, s.entry.Title, s.entry.Secret.Label),
				}
			}
		}
		usable := false
		var why error
		for i := range s.methods {
			k, err := s.methods[i].parseKey(secret.Text)
			if err != nil {
				if why == nil || errors.As(why, new(secretPrefixError)) {
					why = err
				}
				continue
			}
			usable = true
			k.methodIndex, k.id, k.expiresAt = i, secret.ID, secret.ExpiresAt
			s.keys = append(s.keys, k)
		}
		if !usable {
			return &ConfigError{"secrets", why.Error()}
		}
	}
	return nil
}

// maxSecretBytes is the maximum length of a secret, or of a setting, in bytes.
const maxSecretBytes = 4096

func checkSecret(text string) error {
	switch {
	case text == "":
		return &ConfigError{"secrets", "a secret must not be empty"}
	case len(text) > maxSecretBytes:
		return &ConfigError{
			"secrets", fmt.Sprintf("a secret must not be longer than %d bytes", maxSecretBytes),
		}
	case strings.TrimSpace(text) != text:
		return &ConfigError{
			"secrets", "the secret begins or ends with white space: paste it without",
		}
	}
	return nil
}

// Preset returns the ID of the preset, even if the Config contains an alias.
func (s *Sender) Preset() string { return s.entry.ID }

// Verifies reports whether requests are verified with a secret or a public key. Some presets are
// for providers whose requests cannot be verified.
func (s *Sender) Verifies() bool { return len(s.methods) > 0 }

// WaitsForSecret reports whether the sender has no secret yet, because its provider transmits the
// secret in the first handshake. The caller must store that secret.
func (s *Sender) WaitsForSecret() bool { return s.entry.capturesSecret() && len(s.keys) == 0 }

// GivesUpOn4xx reports whether the provider drops the delivery, or the whole webhook, after a 4xx
// response. A request that may be accepted later must then be refused with 503.
func (s *Sender) GivesUpOn4xx() bool { return s.entry.GivesUpOn4xx }

// SecretHeaders returns the canonical names of the headers that contain the secret itself. They are
// never forwarded.
func (s *Sender) SecretHeaders() []string { return s.secretHeaders }

// WWWAuthenticate returns the value of the WWW-Authenticate header in a refusal.
func (s *Sender) WWWAuthenticate() string { return s.wwwAuthenticate }

// NeedsPublicURL reports whether the URL is signed. If it is, the ingress must know its public URL.
func (s *Sender) NeedsPublicURL() bool {
	return slices.ContainsFunc(s.methods, func(m method) bool { return m.signsURL() })
}

// NonPOSTHandshakeMethods returns the HTTP methods of the sender's handshakes, except for POST.
func (s *Sender) NonPOSTHandshakeMethods() []string {
	var methods []string
	for i := range s.handshakes {
		if m := s.handshakes[i].httpMethod; m != deliveryHTTPMethod &&
			!slices.Contains(methods, m) {
			methods = append(methods, m)
		}
	}
	return methods
}

// deliveryHTTPMethod is the method of every delivery.
const deliveryHTTPMethod = "POST"

// Names of settings that are not specific to one preset.
const (
	settingTolerance  = "toleranceSeconds"
	settingDeliveryID = "deliveryId"
)

const (
	defaultToleranceSeconds = 300
	maxToleranceSeconds     = 7 * 24 * 60 * 60
)

func parseTolerance(text string) (time.Duration, error) {
	if text == "" {
		return defaultToleranceSeconds * time.Second, nil
	}
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 0 || seconds > maxToleranceSeconds {
		return 0, &ConfigError{
			"settings." + settingTolerance,
			fmt.Sprintf("must be a number of seconds from 0 (off) to %d", maxToleranceSeconds),
		}
	}
	return time.Duration(seconds) * time.Second, nil
}

// withDefaults returns a copy of given, plus the preset's defaults for the settings that given
// lacks.
func (e *presetEntry) withDefaults(given map[string]string) map[string]string {
	values := maps.Clone(given)
	if values == nil {
		values = map[string]string{}
	}
	for _, s := range e.allSettings() {
		values[s.Name] = cmp.Or(values[s.Name], s.Default)
	}
	return values
}

// resolveSettings validates an operator's settings and adds the defaults.
func (e *presetEntry) resolveSettings(given map[string]string) (map[string]string, error) {
	known := e.allSettings()
	values := make(map[string]string, len(known))
	for _, k := range known {
		value := given[k.Name]
		if value == "" {
			value = k.Default
		}
		field := "settings." + k.Name
		switch {
		case k.Required && value == "":
			return nil, &ConfigError{field, "is required: " + k.Label}
		case len(value) > maxSecretBytes:
			return nil, &ConfigError{
				field, fmt.Sprintf("must not be longer than %d bytes", maxSecretBytes),
			}
		case len(k.Values) > 0 && !slices.Contains(k.Values, value):
			return nil, &ConfigError{field, "must be one of " + strings.Join(k.Values, ", ")}
		}
		values[k.Name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := values[name]; !ok {
			return nil, &ConfigError{
				"settings." + name, "the preset " + e.ID + " has no such setting",
			}
		}
	}
	return values, nil
}
