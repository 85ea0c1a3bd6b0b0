package cli

import (
	"fmt"
	"reflect"

	"github.com/alecthomas/kong"

	"github.com/hookstart/hookstart/shared/execution"
)

// ids refuses invalid IDs before anything is sent: a slash in an ID would lead to another path of
// the API.
var ids = kong.NamedMapper("id", kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("ID", &text); err != nil {
		return err
	}
	if !execution.ValidName(text) {
		return fmt.Errorf("%q cannot be an ID: it must be 1 to 64 of the characters A-Z a-z 0-9 _ -", text)
	}
	target.SetString(text)
	return nil
}))
