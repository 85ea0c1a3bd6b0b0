package program

import (
	"reflect"

	"github.com/alecthomas/kong"
)

// PathMapper decodes flags of the type "path". An empty value, such as HOOKSTART_PLANS= in a
// compose file, means no file; kong would interpret it as the current folder.
var PathMapper = kong.NamedMapper("path",
	kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var path string
		if err := ctx.Scan.PopValueInto("file", &path); err != nil {
			return err
		}
		if path != "" {
			path = kong.ExpandPath(path)
		}
		target.SetString(path)
		return nil
	}))
