package filter

import (
	"bytes"
	"strconv"
)

// pointerSet is a set of JSON pointers that are resolved together, in one pass over the document.
// The pass stops as soon as all of them are resolved.
type pointerSet struct {
	root        *node
	numPointers int // number of pointers
	numNodes    int // number of nodes in the tree
}

// node is one step in a tree of JSON pointers. Pointers that begin with the same steps share the
// nodes of these steps.
type node struct {
	number         int    // number of the node in the tree, from 0
	name           string // name of the member that this step selects
	index          int    // index of the selected array element; -1 if name is not an index
	pointerIndexes []int  // indexes in scanner.values of the pointers that end here
	numPointers    int    // number of pointers that end here or below
	children       []*node
}

func newPointerSet(paths [][]string) *pointerSet {
	p := &pointerSet{root: &node{}, numPointers: len(paths), numNodes: 1}
	for slot, path := range paths {
		at := p.root
		at.numPointers++
		for _, name := range path {
			next := at.child(name)
			if next == nil {
				next = &node{number: p.numNodes, name: name, index: -1}
				if index, err := strconv.ParseUint(name, 10, 31); err == nil &&
					strconv.FormatUint(index, 10) == name {
					next.index = int(index)
				}
				p.numNodes++
				at.children = append(at.children, next)
			}
			at = next
			at.numPointers++
		}
		at.pointerIndexes = append(at.pointerIndexes, slot)
	}
	return p
}

func (n *node) child(name string) *node {
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// resolve returns the value of each pointer in a document, which must be valid JSON or empty. The
// values are stored in buffer if it is large enough.
func (p *pointerSet) resolve(buffer []value, document []byte) []value {
	s := scanner{text: document, unresolved: p.numPointers}
	if cap(buffer) < p.numPointers {
		buffer = make([]value, p.numPointers)
	}
	s.values = buffer[:p.numPointers]
	clear(s.values)
	var seen [64]bool
	if s.visited = seen[:]; p.numNodes > len(seen) {
		s.visited = make([]bool, p.numNodes)
	}
	if len(document) > 0 {
		s.scanNode(p.root)
	}
	return s.values
}

// scanner looks for the values of pointers in a document, which must be valid JSON.
type scanner struct {
	text       []byte
	position   int
	values     []value
	unresolved int    // number of pointers that have not been resolved yet
	visited    []bool // whether a node was reached, by node.number; later duplicates are ignored
}

// scanNode scans the value at the current position, which is the value that n selects. It stops as
// soon as all pointers are resolved.
func (s *scanner) scanNode(n *node) {
	s.skipSpace()
	before := s.unresolved
	start := s.position
	if len(n.children) == 0 {
		s.setValue(n, s.scanValue())
		return
	}
	switch s.text[s.position] {
	case '{':
		s.setContainer(n, kindOther, start)
		s.readMembers(n)
	case '[':
		s.setContainer(n, kindOther, start)
		s.readElements(n)
	default:
		s.setValue(n, s.scanValue())
	}
	// The whole value has been scanned. Pointers below this node that have no value yet cannot have
	// one elsewhere in the document, so stop counting them as unresolved.
	s.unresolved = min(s.unresolved, before-n.numPointers)
}

// setValue sets v as the value of every pointer that ends at n.
func (s *scanner) setValue(n *node, v value) {
	for _, slot := range n.pointerIndexes {
		s.values[slot] = v
	}
	s.unresolved -= len(n.pointerIndexes)
}

// setContainer records that the pointers that end at n select an object or an array, which begins
// at start. It stores no contents, because the contents of objects and arrays are never compared.
func (s *scanner) setContainer(n *node, k kind, start int) {
	s.setValue(n, value{kind: k, json: s.text[start : start+1]})
}

// readMembers scans the members of an object, and resolves the pointers below n.
func (s *scanner) readMembers(n *node) {
	s.position++ // {
	for s.unresolved > 0 {
		s.skipSpace()
		if s.text[s.position] == '}' {
			s.position++
			return
		}
		if s.text[s.position] == ',' {
			s.position++
			s.skipSpace()
		}
		start := s.position
		escaped := s.skipString()
		name := s.text[start:s.position]
		s.skipSpace()
		s.position++ // :
		next := n.childByQuotedName(name, escaped)
		if next == nil || s.visited[next.number] {
			s.skipSpace()
			s.scanValue()
			continue
		}
		s.visited[next.number] = true
		s.scanNode(next)
	}
}

// childByQuotedName returns the child with the given name, or nil if there is none. The name is
// quoted as in the document; escaped reports whether it contains escapes.
func (n *node) childByQuotedName(quoted []byte, escaped bool) *node {
	name := quoted[1 : len(quoted)-1]
	if escaped {
		name = []byte(unquote(quoted))
	}
	for _, c := range n.children {
		if c.name == string(name) {
			return c
		}
	}
	return nil
}

// readElements scans the elements of an array, and resolves the pointers below n.
func (s *scanner) readElements(n *node) {
	s.position++ // [
	for index := 0; s.unresolved > 0; index++ {
		s.skipSpace()
		if s.text[s.position] == ']' {
			s.position++
			return
		}
		if s.text[s.position] == ',' {
			s.position++
			s.skipSpace()
		}
		var next *node
		for _, c := range n.children {
			if c.index == index {
				next = c
			}
		}
		if next == nil {
			s.scanValue()
			continue
		}
		s.scanNode(next)
	}
}

// scanValue scans a complete value and returns it.
func (s *scanner) scanValue() value {
	start := s.position
	switch c := s.text[s.position]; c {
	case '"':
		s.skipString()
		return value{kind: kindText, json: s.text[start:s.position]}
	case '{', '[':
		s.skipContainer()
		return value{kind: kindOther, json: s.text[start:s.position]}
	default:
		for s.position < len(s.text) && !endsToken(s.text[s.position]) {
			s.position++
		}
		k := kindNumber
		switch c {
		case 't', 'f':
			k = kindBool
		case 'n':
			k = kindNull
		}
		return value{kind: k, json: s.text[start:s.position]}
	}
}

// endsToken reports whether c may follow a number, true, false or null.
func endsToken(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\t', '\r', '\n':
		return true
	default:
		return false
	}
}

// skipContainer skips an object or an array.
func (s *scanner) skipContainer() {
	for depth := 0; ; {
		switch s.text[s.position] {
		case '"':
			s.skipString()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.position++
		if depth == 0 {
			return
		}
	}
}

// skipString skips a string and reports whether it contains escapes.
func (s *scanner) skipString() (escaped bool) {
	s.position++
	for {
		end := bytes.IndexByte(s.text[s.position:], '"')
		s.position += end + 1
		backslashes := 0
		for s.text[s.position-2-backslashes] == '\\' {
			backslashes++
		}
		if bytes.IndexByte(s.text[s.position-1-end:s.position-1], '\\') >= 0 {
			escaped = true
		}
		if backslashes%2 == 0 {
			return escaped
		}
	}
}

func (s *scanner) skipSpace() {
	for s.position < len(s.text) {
		switch s.text[s.position] {
		case ' ', '\t', '\r', '\n':
			s.position++
		default:
			return
		}
	}
}
