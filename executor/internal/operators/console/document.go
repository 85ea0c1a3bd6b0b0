package console

import "strings"

// jsonDocument is a JSON text on a page. The page shows it both as a tree that can be folded and as
// raw text.
type jsonDocument struct {
	Name      string    // a single word, displayed and used in the IDs of elements
	Tree      *jsonTree // nil means that the text is not JSON
	Raw       string
	Truncated bool   // Raw holds only the beginning of the text
	WholeURL  string // URL of the whole text
}

// maxRawTextBytes is the maximum length, in bytes, of the raw text on a page. A longer text is
// truncated.
const maxRawTextBytes = 256 << 10

func newJSONDocument(name string, text []byte, whole string) *jsonDocument {
	return &jsonDocument{
		Name:      name,
		Tree:      parseJSONTree(text),
		WholeURL:  whole,
		Raw:       strings.ToValidUTF8(string(text[:min(len(text), maxRawTextBytes)]), ""),
		Truncated: len(text) > maxRawTextBytes,
	}
}
