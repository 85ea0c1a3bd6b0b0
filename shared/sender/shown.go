package sender

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/shared/webhook"
)

// forbiddenSecretHeaders lists the canonical names of headers that an operator must not choose for
// a secret. Records show the values of some of them outside the request's headers, where the secret
// would not be hidden. The others are used by HTTP itself, so the secret could get lost.
var forbiddenSecretHeaders = canonicalHeaderNames(slices.Concat(
	webhook.PriorityDeliveryIDHeaders(), webhook.DefaultDeliveryIDHeaders(),
	[]string{
		"Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection",
		"Host", "User-Agent", "Traceparent", "Tracestate",
	},
))

var credentialHeaders = canonicalHeaderNames(webhook.SecretHeaders())

// CheckSecretsHidden returns a *ConfigError if a Config would show a secret to people who may not
// see it, as a delivery ID or in another part of a record. Compile still accepts such a Config,
// because earlier versions have stored some. The Sender then ignores the sources of delivery IDs
// that contain a secret.
func CheckSecretsHidden(c Config) error {
	e, err := findEntry(c.Preset)
	if err != nil {
		return err
	}
	settings, err := e.resolveSettings(c.Settings)
	if err != nil {
		return err
	}
	header := textproto.CanonicalMIMEHeaderKey(settings["header"])
	if e.GeneralKind == generalPresetHeader && slices.Contains(forbiddenSecretHeaders, header) {
		return &ConfigError{
			"settings.header",
			fmt.Sprintf("what %s holds is not kept secret: choose a header that has no other "+
				"meaning", header),
		}
	}
	_, drop, err := e.methodSpecs(settings)
	if err != nil {
		return err
	}
	secret := slices.Concat(credentialHeaders, canonicalHeaderNames(e.SecretHeaders), drop)
	texts, _ := e.configuredDeliveryIDSources(settings)
	for _, text := range texts {
		name, ok := strings.CutPrefix(text, "header:")
		if ok && slices.Contains(secret, textproto.CanonicalMIMEHeaderKey(name)) {
			field := "settings." + settingDeliveryID
			if settings[settingDeliveryID] == "" {
				field = "settings.idHeader"
			}
			return &ConfigError{
				field, name + " holds a secret, and delivery IDs are shown: name another source",
			}
		}
	}
	return nil
}

// SecretHeaders returns the canonical names of the headers in which requests to a sender with the
// given preset and settings contain the secret itself. It returns nil if the preset or the settings
// are invalid.
func SecretHeaders(preset string, settings map[string]string) []string {
	s, _, err := newWithoutSecrets(Config{Preset: preset, Settings: settings})
	if err != nil {
		return nil
	}
	return s.secretHeaders
}

// HasSecretOutsideHeaders reports whether requests of a preset contain the secret outside the
// headers. It is then usually in the body, which is recorded and forwarded.
func HasSecretOutsideHeaders(preset string) bool {
	e, err := findEntry(preset)
	return err == nil && slices.ContainsFunc(e.VerificationMethods, func(m methodSpec) bool {
		return m.Scheme == schemeStatic && !strings.HasPrefix(m.Signature, "header:")
	})
}

// withoutSecretSources removes the sources that contain a secret: headers for credentials, such as
// Authorization, and those in secretHeaders.
func withoutSecretSources(sources []deliveryIDSource, secretHeaders []string) []deliveryIDSource {
	return slices.DeleteFunc(sources, func(id deliveryIDSource) bool {
		return slices.ContainsFunc(id.parts, func(s valueSource) bool {
			return s.kind == sourceHeader &&
				(slices.Contains(credentialHeaders, s.name) ||
					slices.Contains(secretHeaders, s.name))
		})
	})
}
