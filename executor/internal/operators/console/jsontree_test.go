package console

import (
	"strings"
	"testing"
)

func TestJSONTree(t *testing.T) {
	t.Parallel()
	tree := parseJSONTree([]byte(`{"n":12345678901234567890,"n":1E-2,"s":"é\u0000<","unseen":"a\u202eb\u200bc\ud83d\udc69\u200d\ud83d\udc69\udb40\udc01","list":[true,null,[],{}]}`))
	var said []string
	var walk func(*jsonTree)
	walk = func(node *jsonTree) {
		said = append(said, node.Key+"|"+node.Text+"|"+node.Kind)
		for _, child := range node.Children {
			walk(child)
		}
	}
	walk(tree)
	want := strings.Join([]string{
		`||object`, `"n"|12345678901234567890|number`, `"n"|1E-2|number`, `"s"|"é\u0000<"|string`,
		`"unseen"|"a\u202eb\u200bc👩` + "\u200d" + `👩\udb40\udc01"|string`, `"list"||array`,
		`|true|word`, `|null|word`, `||array`, `||object`,
	}, "\n")
	if got := strings.Join(said, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The number of nodes and the depth of a JSON tree are limited, no matter how large the JSON text
// is, so that the page stays small.
func TestJSONTreeIsBounded(t *testing.T) {
	t.Parallel()
	wide := parseJSONTree([]byte("[" + strings.Repeat("[1],", 50_000) + "2]"))
	if wide == nil || wide.Count != 50_001 ||
		int(wide.OmittedCount)+len(wide.Children) != wide.Count ||
		len(wide.Children) > maxTreeNodes {
		t.Errorf("wide: %+v", wide)
	}
	deep := parseJSONTree([]byte(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)))
	depth := 0
	for at := deep; at != nil && len(at.Children) > 0; at = at.Children[0] {
		depth++
	}
	if deep == nil || depth != maxTreeDepth {
		t.Errorf("deep: %d", depth)
	}
	if long := parseJSONTree([]byte(`"` + strings.Repeat("é", 100_000) + `"`)); long == nil ||
		len(long.Text) > maxTreeStringBytes+10 {
		t.Error("long")
	}
	for _, text := range []string{"", "{", `{"a"`, "nope"} {
		if tree := parseJSONTree([]byte(text)); tree != nil {
			t.Errorf("%q: %+v", text, tree)
		}
	}
}
