package sender

import (
	"errors"
	"fmt"
	"strings"
)

// messageTemplate describes the signed message as a sequence of literals and parts of the request.
type messageTemplate []messagePart

type messagePart struct {
	kind    partKind
	literal string
	source  valueSource
}

type partKind uint8

const (
	partLiteral partKind = iota
	partBody
	partPayload // the result of Request.signedPayload
	partTime    // the time as sent
	partURL
	partMethod
	partSecret
	partSource
)

// parseTemplate parses a template. builtIn means that text comes from the built-in table of senders
// rather than from an operator's setting. Only a built-in template may contain {payload}, {secret},
// {ptr:…} and {form:…}. {id} stands for the value at the source id.
func parseTemplate(text string, builtIn bool, id *valueSource) (messageTemplate, error) {
	var t messageTemplate
	for text != "" {
		literal, rest, opens := strings.Cut(text, "{")
		if strings.Contains(literal, "}") {
			return nil, errors.New("the message has a } without a {")
		}
		if literal != "" {
			t = append(t, messagePart{kind: partLiteral, literal: literal})
		}
		if !opens {
			break
		}
		name, after, closes := strings.Cut(rest, "}")
		if !closes {
			return nil, errors.New("the message has a { without a }")
		}
		p, err := parsePart(name, builtIn, id)
		if err != nil {
			return nil, err
		}
		t, text = append(t, p), after
	}
	return t, nil
}

func parsePart(name string, builtIn bool, id *valueSource) (messagePart, error) {
	switch name {
	case "body":
		return messagePart{kind: partBody}, nil
	case "time":
		return messagePart{kind: partTime}, nil
	case "url":
		return messagePart{kind: partURL}, nil
	case "method":
		return messagePart{kind: partMethod}, nil
	case "id":
		if id == nil {
			return messagePart{}, errors.New("the message has {id}, so idHeader is required")
		}
		return messagePart{kind: partSource, source: *id}, nil
	}
	switch {
	case builtIn && name == "payload":
		return messagePart{kind: partPayload}, nil
	case builtIn && name == "secret":
		return messagePart{kind: partSecret}, nil
	case builtIn || strings.HasPrefix(name, "header:"):
		s, err := parseSource(name, builtIn)
		if err != nil {
			return messagePart{}, fmt.Errorf("the message's part {%s}: %w", name, err)
		}
		return messagePart{kind: partSource, source: s}, nil
	}
	return messagePart{},
		fmt.Errorf("the message has no part {%s}: there are {body}, {time}, {id}, {url}, "+
			"{method} and {header:Name}", name)
}

// separatesTimeFromBody reports whether the message consists of the time and the body, with a
// literal between them that no number can continue. Such a message has only one reading.
func (t messageTemplate) separatesTimeFromBody() bool {
	if len(t) > 0 && t[0].kind == partLiteral { // such as v0: of Slack
		t = t[1:]
	}
	if len(t) != 3 || t[0].kind != partTime || t[1].kind != partLiteral || t[2].kind != partBody {
		return false
	}
	first := t[1].literal[0]
	return first < '0' || first > '9'
}

func (t messageTemplate) hasPart(kind partKind) bool {
	for i := range t {
		if t[i].kind == kind {
			return true
		}
	}
	return false
}

// coversBody reports whether the whole body is signed.
func (t messageTemplate) coversBody() bool { return t.hasPart(partBody) || t.hasPart(partPayload) }

// firstMissingPart returns the first source in the template for which the request has no value, or
// "" if there is none.
func (t messageTemplate) firstMissingPart(r *Request) string {
	for i := range t {
		if t[i].kind == partSource && t[i].source.value(r) == "" {
			return t[i].source.String()
		}
	}
	return ""
}

// String returns the source in the notation of the built-in table.
func (s valueSource) String() string {
	switch s.kind {
	case sourceHeader:
		return "header:" + s.name
	case sourceJSONPointer:
		escape := strings.NewReplacer("~", "~0", "/", "~1")
		var text strings.Builder
		text.WriteString("ptr:")
		for _, token := range s.pointer {
			text.WriteString("/" + escape.Replace(token))
		}
		return text.String()
	case sourceFormField:
		return "form:" + s.name
	case sourceQueryParam:
		return "query:" + s.name
	case sourceSignaturePart:
		return "signature:" + s.name
	default:
		return ""
	}
}

// write calls the function write with each part of the signed message, in order. time is the time
// of signing, as written in the request.
func (t messageTemplate) write(write func([]byte), r *Request, time string, secret []byte) {
	for i := range t {
		switch p := &t[i]; p.kind {
		case partLiteral:
			write([]byte(p.literal))
		case partBody:
			write(r.Body)
		case partPayload:
			write(r.signedPayload())
		case partTime:
			write([]byte(time))
		case partURL:
			write([]byte(r.URL))
		case partMethod:
			write([]byte(r.Method))
		case partSecret:
			write(secret)
		case partSource:
			write([]byte(p.source.value(r)))
		}
	}
}
