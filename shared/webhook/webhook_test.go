package webhook_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/webhook"
)

// Codes must return all declared codes, in the order of their declarations, because tests compare
// other tables with it.
func TestCodesAreAllOfThem(t *testing.T) {
	t.Parallel()
	source, err := parser.ParseFile(token.NewFileSet(), "webhook.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []webhook.Code
	ast.Inspect(source, func(n ast.Node) bool {
		constant, ok := n.(*ast.ValueSpec)
		if !ok || len(constant.Values) != 1 {
			return true
		}
		if kind, ok := constant.Type.(*ast.Ident); !ok || kind.Name != "Code" {
			return true
		}
		literal, ok := constant.Values[0].(*ast.BasicLit)
		if !ok {
			t.Fatalf("%s is not a literal", constant.Names[0].Name)
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		code, name := webhook.Code(text), constant.Names[0].Name
		if strings.HasPrefix(name, "CodeSignature") != code.IsSignatureRefusal() {
			t.Errorf("%s is %q, and IsSignatureRefusal returns %t", name, code,
				code.IsSignatureRefusal())
		}
		declared = append(declared, code)
		return true
	})
	if got := webhook.Codes(); len(declared) == 0 || !slices.Equal(got, declared) {
		t.Errorf("Codes is %q, declared are %q", got, declared)
	}
}
