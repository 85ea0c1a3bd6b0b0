package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Limits of a jsonTree, which keep pages small even if a sender sends large documents. The raw text
// shows what the tree omits, up to maxRawTextBytes.
const (
	maxTreeNodes       = 2000
	maxTreeDepth       = 30
	maxTreeStringBytes = 2000 // maximum length of a string, in bytes
	unfoldedDepth      = 3    // depth to which the tree is unfolded initially
)

// jsonTree is a JSON value and, as its children, the values that it contains. The page shows it as
// a tree in which objects and arrays can be folded.
type jsonTree struct {
	Key          string // name in quotes; "" means that the value is not a member of an object
	Kind         string // object, array, string, number, or word (true, false or null)
	Text         string // text of a scalar value
	Children     []*jsonTree
	Count        int   // number of children, including omitted ones
	OmittedCount int64 // number of omitted children
	Unfolded     bool  // the value is unfolded initially
}

// IsFoldable reports whether the value is an object or an array.
func (t *jsonTree) IsFoldable() bool { return t.Kind == "object" || t.Kind == "array" }

// Brackets returns the opening and the closing bracket of an object or array.
func (t *jsonTree) Brackets() [2]string {
	if t.Kind == "array" {
		return [2]string{"[", "]"}
	}
	return [2]string{"{", "}"}
}

// parseJSONTree parses a JSON text token by token, which preserves numbers and the order of
// members. It returns nil if the text is not JSON.
func parseJSONTree(text []byte) *jsonTree {
	p := treeParser{decoder: json.NewDecoder(bytes.NewReader(text))}
	p.decoder.UseNumber()
	tree, err := p.parseValue(0)
	if err != nil {
		return nil
	}
	return tree
}

type treeParser struct {
	decoder   *json.Decoder
	nodeCount int
}

func (p *treeParser) parseValue(depth int) (*jsonTree, error) {
	token, err := p.decoder.Token()
	if err != nil {
		return nil, err
	}
	p.nodeCount++
	switch v := token.(type) {
	case json.Delim:
		tree := &jsonTree{Kind: "object", Unfolded: depth < unfoldedDepth}
		if v == '[' {
			tree.Kind = "array"
		}
		return tree, p.parseChildren(tree, depth)
	case string:
		return &jsonTree{Kind: "string", Text: quoteJSON(v)}, nil
	case json.Number:
		return &jsonTree{Kind: "number", Text: v.String()}, nil
	case bool:
		if v {
			return &jsonTree{Kind: "word", Text: "true"}, nil
		}
		return &jsonTree{Kind: "word", Text: "false"}, nil
	default:
		return &jsonTree{Kind: "word", Text: "null"}, nil
	}
}

func (p *treeParser) parseChildren(parent *jsonTree, depth int) error {
	for p.decoder.More() {
		key := ""
		if parent.Kind == "object" {
			name, err := p.decoder.Token()
			if err != nil {
				return err
			}
			if text, ok := name.(string); ok {
				key = quoteJSON(text)
			}
		}
		parent.Count++
		if p.nodeCount >= maxTreeNodes || depth >= maxTreeDepth {
			parent.OmittedCount++
			if err := p.skipValue(); err != nil {
				return err
			}
			continue
		}
		child, err := p.parseValue(depth + 1)
		if err != nil {
			return err
		}
		child.Key = key
		parent.Children = append(parent.Children, child)
	}
	_, err := p.decoder.Token() // the closing bracket
	return err
}

// skipValue skips a value of any depth. Decoding it to a json.RawMessage would fail if it were
// nested very deeply.
func (p *treeParser) skipValue() error {
	for depth := 0; ; {
		token, err := p.decoder.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// quoteJSON returns text as a JSON string, truncated if it is very long.
func quoteJSON(text string) string {
	cut := len(text) > maxTreeStringBytes
	if cut {
		text = strings.ToValidUTF8(text[:maxTreeStringBytes], "")
	}
	var written bytes.Buffer
	encoder := json.NewEncoder(&written)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(text) != nil {
		return `""` // unreachable: strings always encode
	}
	shown := escapeInvisible(strings.TrimSuffix(written.String(), "\n"))
	if cut {
		shown += " …"
	}
	return shown
}

// escapeInvisible escapes invisible characters, some of which reverse the direction of the text
// around them. Unescaped, they could make a value look like a different one. Zero-width joiners are
// kept because they are parts of words and emoji.
func escapeInvisible(text string) string {
	const nonJoiner, joiner = '\u200c', '\u200d'
	var shown strings.Builder
	for _, r := range text {
		switch {
		case r == nonJoiner || r == joiner || !unicode.In(r, unicode.Cc, unicode.Cf):
			shown.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&shown, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&shown, `\u%04x`, r)
		}
	}
	return shown.String()
}
