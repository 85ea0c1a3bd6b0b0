package console

import "strings"

// document is a JSON text on a page, shown both as a tree that can be folded and as raw text.
type document struct {
	Name  string    // a single word, displayed and used in the IDs of elements
	Tree  *jsonTree // nil means that the text is not JSON
	Raw   string
	Cut   bool   // Raw is truncated
	Whole string // URL of the whole text
}

// maxRaw is the maximum number of bytes of raw text on a page.
const maxRaw = 256 << 10

func newDocument(name string, text []byte, whole string) *document {
	return &document{
		Name:  name,
		Tree:  parseJSONTree(text),
		Whole: whole,
		Raw:   strings.ToValidUTF8(string(text[:min(len(text), maxRaw)]), ""),
		Cut:   len(text) > maxRaw,
	}
}
