package cli

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/hookstart/hookstart/shared/execution"
)

// idMapper rejects invalid IDs before anything is sent: a slash in an ID would change the path of
// the API call.
var idMapper = kong.NamedMapper("id", kong.MapperFunc(decodeID))

// nodeIDMapper is like idMapper, but for the argument that holds a trigger node's ID. If the
// argument looks like the new value of a setting, the error says that the node's ID was expected
// there.
var nodeIDMapper = kong.NamedMapper("node", kong.MapperFunc(decodeNodeID))

func decodeNodeID(ctx *kong.DecodeContext, target reflect.Value) error {
	const format = "a node's ID comes here, and %q is %s; to set it, write %s"
	if text, ok := ctx.Scan.Peek().Value.(string); ok && !execution.ValidName(text) {
		switch {
		case looksLikeLocation(text):
			return fmt.Errorf(format, text, "a place", "--set "+text)
		case strings.HasPrefix(text, "{"):
			return fmt.Errorf(format, text, "JSON",
				"--set '"+text+"', or --data of a sample payload")
		}
	}
	return decodeID(ctx, target)
}

func decodeID(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("ID", &text); err != nil {
		return err
	}
	if !execution.ValidName(text) {
		return fmt.Errorf("%q cannot be an ID: it must be 1 to 64 of the characters A-Z a-z 0-9 "+
			"_ -", text)
	}
	target.SetString(text)
	return nil
}

// looksLikeLocation reports whether text looks like the location of a value in a request, such as
// header:Name, or like a JSON pointer without the prefix ptr:.
func looksLikeLocation(text string) bool {
	for _, kind := range []string{"header:", "ptr:", "form:", "query:", "/"} {
		if strings.HasPrefix(text, kind) {
			return true
		}
	}
	return false
}
