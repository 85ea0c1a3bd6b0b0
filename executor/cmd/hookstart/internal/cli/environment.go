package cli

import (
	"strings"

	"github.com/alecthomas/kong"

	"github.com/hookstart/hookstart/shared/program"
)

// verbEnvarsOption gives each flag of a verb an environment variable whose name contains the verb,
// such as HOOKSTART_WORKFLOW_PUT_NAME, because HOOKSTART_NAME would affect several verbs.
//
// It leaves out three sorts of flags: the flags that all verbs have, the flags for connections to
// NATS, and the flags of "run", which are set in a service's environment. kong.DefaultEnvars, which
// runs later, gives these flags the same short names as in all other programs.
var verbEnvarsOption = kong.PostBuild(func(k *kong.Kong) error {
	for _, verb := range k.Model.Children {
		if verb.Name != "run" {
			setFlagEnvars(verb, program.EnvPrefix)
		}
	}
	return nil
})

func setFlagEnvars(node *kong.Node, prefix string) {
	prefix += "_" + envarName(node.Name)
	for _, flag := range node.Flags {
		if len(flag.Envs) == 0 && flag.Name != "help" && !strings.HasPrefix(flag.Name, "nats-") {
			flag.Envs = []string{prefix + "_" + envarName(flag.Name)}
			flag.Tag.Envs = flag.Envs
		}
	}
	for _, child := range node.Children {
		setFlagEnvars(child, prefix)
	}
}

func envarName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
