package cli

import (
	"strings"

	"github.com/alecthomas/kong"

	"github.com/hookstart/hookstart/shared/program"
)

// ownVariables gives a flag of a single verb a variable that names the verb, like HOOKSTART_WORKFLOW_PUT_NAME: HOOKSTART_NAME
// would change several verbs. The flags of all verbs, those of connections to NATS and those of "run", which are set in the
// environment of a service, get the short form of all programs from kong.DefaultEnvars, which comes later.
var ownVariables = kong.PostBuild(func(k *kong.Kong) error {
	for _, verb := range k.Model.Children {
		if verb.Name != "run" {
			nameVariables(verb, program.EnvPrefix)
		}
	}
	return nil
})

func nameVariables(node *kong.Node, prefix string) {
	prefix += "_" + constant(node.Name)
	for _, flag := range node.Flags {
		if len(flag.Envs) == 0 && flag.Name != "help" && !strings.HasPrefix(flag.Name, "nats-") {
			flag.Envs = []string{prefix + "_" + constant(flag.Name)}
			flag.Tag.Envs = flag.Envs
		}
	}
	for _, child := range node.Children {
		nameVariables(child, prefix)
	}
}

func constant(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
