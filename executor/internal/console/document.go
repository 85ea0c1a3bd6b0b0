package console

import "strings"

// document is a JSON text on a page: as a tree that can be folded, and as raw text.
type document struct {
	Name  string    // one word, for people and for the IDs of its elements
	Tree  *jsonTree // nil means that it cannot be shown as a tree
	Raw   string
	Cut   bool   // Raw is only the beginning
	Whole string // the URL of the whole text
}

// maxRaw is the maximum number of bytes of a text that a page shows raw.
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
