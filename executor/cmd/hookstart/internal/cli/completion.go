package cli

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints a shell's completion script. To complete a word, the script runs this
// command again, with the words that were typed so far as Words. The completion libraries for kong
// (kong-completion, kongplete) are not used because they depend on posener/complete, which does not
// support descriptions, and on four more modules that are no longer maintained.
type completionCmd struct {
	Shell string   `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
	Words []string `arg:"" optional:"" help:"A command line after --, as the scripts pass it: prints what its last word can be."`
}

func (*completionCmd) Help() string {
	return `Prints a script that lets the shell complete verbs, flags and their values. To use it
in each new shell:

  echo 'source <(hookstart completion bash)' >> ~/.bashrc
  echo 'source <(hookstart completion zsh)' >> ~/.zshrc
  hookstart completion fish > ~/.config/fish/completions/hookstart.fish

Example:

  hookstart completion bash`
}

// fileCompletionMarker is printed instead of candidates if the word to complete is a file name. The
// completion script then lets the shell complete the word.
const fileCompletionMarker = "_files"

// completionScripts holds one completion script per shell. The scripts do not need the shell's
// optional completion package, such as bash-completion. Bash splits words at "=", and the package
// would join them again, so the bash script has to handle the split words itself.
//
//go:embed completion
var completionScripts embed.FS

func (v *completionCmd) Run(s *session, model *kong.Application) error {
	if len(v.Words) == 0 {
		script, err := completionScripts.ReadFile("completion/hookstart." + v.Shell)
		if err != nil {
			return err
		}
		_, err = s.Out.Write(script)
		return err
	}
	flagged, last := "", v.Words[len(v.Words)-1]
	if name, _, ok := strings.Cut(last, "="); ok && v.Shell == "fish" &&
		strings.HasPrefix(name, "--") {
		flagged = name + "=" // fish replaces the whole word
	}
	for _, c := range completionCandidates(model.Node, v.Words[1:]) {
		line := flagged + c.text
		switch {
		case c.text == fileCompletionMarker:
			line = fileCompletionMarker
		case v.Shell == "zsh":
			line = strings.ReplaceAll(c.text, ":", `\:`) + ":" + c.help
		case v.Shell == "fish":
			line += "\t" + c.help
		}
		if _, err := fmt.Fprintln(s.Out, line); err != nil {
			return err
		}
	}
	return nil
}

// candidate is a possible completion of a word. help describes it; only some shells display this
// description.
type candidate struct{ text, help string }

// completionCandidates returns the candidates for the last of the given words. The words are the
// arguments that follow the command node, and the last one may be incomplete. The candidates are
// not filtered by that incomplete word: each shell does that itself.
func completionCandidates(node *kong.Node, words []string) (found []candidate) {
	var pending *kong.Flag // the flag whose value is the next word
	for i, word := range words {
		last := i == len(words)-1
		name, _, hasValue := strings.Cut(word, "=")
		switch flag := findFlag(node, name); {
		case word == "=" && last, word != "=" && pending != nil && last:
			return flagValueCandidates(pending)
		case word == "=": // bash splits a flag and its value at =
		case pending != nil:
			pending = nil
		case strings.HasPrefix(word, "-") && last && hasValue:
			return flagValueCandidates(flag)
		case strings.HasPrefix(word, "-") && last:
			return flagCandidates(node)
		case flag != nil && !hasValue && !flag.IsBool() && !flag.IsCounter():
			pending = flag
		case !last:
			at := slices.IndexFunc(node.Children, func(child *kong.Node) bool {
				return child.Name == word
			})
			switch {
			case at >= 0:
				node = node.Children[at]
			case len(node.Children) > 0:
				return nil // no such verb
			}
		}
	}
	for _, child := range node.Children {
		found = append(found, candidate{child.Name, child.Help})
	}
	for _, argument := range node.Positional {
		found = append(found, enumCandidates(argument)...)
	}
	return found
}

func findFlag(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

func flagCandidates(node *kong.Node) (found []candidate) {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			found = append(found, candidate{"--" + f.Name, f.Help})
			if f.Short != 0 {
				found = append(found, candidate{"-" + string(f.Short), f.Help})
			}
		}
	}
	return found
}

func flagValueCandidates(f *kong.Flag) []candidate {
	if f != nil && (f.Name == "file" || f.Tag.Type == "path") {
		return []candidate{{text: fileCompletionMarker}}
	}
	if f == nil {
		return nil
	}
	return enumCandidates(f.Value)
}

func enumCandidates(v *kong.Value) (found []candidate) {
	for text := range strings.SplitSeq(v.Enum, ",") {
		if text != "" {
			found = append(found, candidate{text, v.Help})
		}
	}
	return found
}
