package sender

import (
	"errors"
	"net/textproto"
	"strings"

	"github.com/hookstart/hookstart/shared/webhook"
)

// methodSpecs returns the preset's verification methods. A general preset has one method, which is
// built from the settings. The method of the general preset for headers reads the secret itself
// from a header that a setting names; secretHeaders then holds the canonical name of that header.
// Otherwise, secretHeaders is nil.
func (e *presetEntry) methodSpecs(
	settings map[string]string,
) (specs []methodSpec, secretHeaders []string, err error) {
	header := settings["header"]
	if e.GeneralKind != "" && !webhook.IsHeaderName(header) {
		return nil, nil, &ConfigError{"settings.header", "is not a valid header name"}
	}
	switch e.GeneralKind {
	case generalPresetHMAC:
		spec, err := hmacMethodSpec(settings)
		return []methodSpec{spec}, nil, err
	case generalPresetHeader:
		return []methodSpec{{Scheme: schemeStatic, Signature: "header:" + header}}, []string{
			textproto.CanonicalMIMEHeaderKey(header),
		}, nil
	default:
		return e.VerificationMethods, nil, nil
	}
}

// hmacMethodSpec returns the method of the hmac preset, built from its settings.
func hmacMethodSpec(settings map[string]string) (methodSpec, error) {
	spec := methodSpec{
		Scheme:        schemeHMAC,
		Hash:          settings["hash"],
		Signature:     "header:" + settings["header"],
		Prefix:        settings["prefix"],
		Encoding:      settings["encoding"],
		KeyFormat:     settings["key"],
		Message:       settings["message"],
		listSeparator: ",",
	}
	if strings.Contains(spec.Prefix, ",") { // such as v1, of Standard Webhooks
		spec.listSeparator = " "
	}
	if name := settings["idHeader"]; name != "" {
		if !webhook.IsHeaderName(name) {
			return spec, &ConfigError{"settings.idHeader", "is not a valid header name"}
		}
		id := valueSource{kind: sourceHeader, name: textproto.CanonicalMIMEHeaderKey(name)}
		spec.idSource = &id
	}
	if name := settings["timeHeader"]; name != "" {
		if !webhook.IsHeaderName(name) {
			return spec, &ConfigError{"settings.timeHeader", "is not a valid header name"}
		}
		spec.Time = &timeSpec{Source: "header:" + name, Unit: "auto"}
	}
	m, err := spec.compile(nil)
	if err == nil && !m.message.coversBody() {
		err = errors.New("the message must contain {body}: else anybody could change the body")
	}
	if err != nil {
		return spec, &ConfigError{"settings.message", err.Error()}
	}
	return spec, nil
}
