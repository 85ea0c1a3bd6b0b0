package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionVerb prints a shell's script, which calls the verb again with the words of a command line to complete the last one.
// The libraries for kong (kong-completion, kongplete) use posener/complete, which has no descriptions, and need four more
// modules that are no longer maintained.
type completionVerb struct {
	Shell string   `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
	Words []string `arg:"" optional:"" help:"A command line after --, as the scripts pass it: prints what its last word can be."`
}

func (*completionVerb) Help() string {
	return `Prints a script that lets the shell complete verbs, flags and their values. To use it
in each new shell:

  echo 'source <(hookstart completion bash)' >> ~/.bashrc
  echo 'source <(hookstart completion zsh)' >> ~/.zshrc
  hookstart completion fish > ~/.config/fish/completions/hookstart.fish

Example:

  hookstart completion bash`
}

// anyFile is printed in place of candidates where the word is the name of a file: shells know those.
const anyFile = "_files"

// completionScripts need no other package of the shell. Bash takes = for a word.
var completionScripts = map[string]string{
	"bash": `# Completion of hookstart for bash. Made by: hookstart completion bash
_hookstart() {
  local IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]} found
  if [[ $cur == = ]]; then cur=; fi
  found=$(hookstart completion bash -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
  if [[ $found == ` + anyFile + ` ]]; then
    COMPREPLY=($(compgen -f -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$found" -- "$cur"))
  fi
}
complete -F _hookstart hookstart
`,
	"zsh": `#compdef hookstart
# Completion of hookstart for zsh. Made by: hookstart completion zsh
_hookstart() {
  local -a found=("${(@f)$(hookstart completion zsh -- "${(@)words[1,CURRENT]}" 2>/dev/null)}")
  if [[ $PREFIX == --*=* ]]; then compset -P '*='; fi
  if [[ $found[1] == ` + anyFile + ` ]]; then
    _files
  else
    _describe hookstart found
  fi
}
if [[ $funcstack[1] == _hookstart ]]; then
  _hookstart
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
  compdef _hookstart hookstart
fi
`,
	"fish": `# Completion of hookstart for fish. Made by: hookstart completion fish
function __hookstart_complete
  set -l found (hookstart completion fish -- (commandline -opc) (commandline -ct) 2>/dev/null)
  if test "$found" = ` + anyFile + `
    __fish_complete_path (commandline -ct | string replace -r '^--[^=]*=' '')
  else
    printf '%s\n' $found
  end
end
complete -c hookstart -f -a '(__hookstart_complete)'
`,
}

// Run implements the verb.
func (v *completionVerb) Run(s *session, model *kong.Application) error {
	if len(v.Words) == 0 {
		_, err := fmt.Fprint(s.Out, completionScripts[v.Shell])
		return err
	}
	flagged, last := "", v.Words[len(v.Words)-1]
	if name, _, is := strings.Cut(last, "="); is && v.Shell == "fish" && strings.HasPrefix(name, "--") {
		flagged = name + "=" // fish replaces the whole word
	}
	for _, c := range candidates(model.Node, v.Words[1:]) {
		line := flagged + c.text
		switch {
		case c.text == anyFile:
			line = anyFile
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

// candidate is what a word can be.
type candidate struct{ text, help string }

// candidates are what the last word of a command line can be, whatever it begins with; fish and zsh, too, choose by that.
func candidates(node *kong.Node, words []string) (found []candidate) {
	var of *kong.Flag // whose value the next word is
	for i, word := range words {
		last := i == len(words)-1
		name, _, hasValue := strings.Cut(word, "=")
		switch flag := flagNamed(node, name); {
		case word == "=" && last, word != "=" && of != nil && last:
			return valuesOf(of)
		case word == "=": // bash's, between a flag and its value
		case of != nil:
			of = nil
		case strings.HasPrefix(word, "-") && last && hasValue:
			return valuesOf(flag)
		case strings.HasPrefix(word, "-") && last:
			return flagsOf(node)
		case flag != nil && !hasValue && !flag.IsBool() && !flag.IsCounter():
			of = flag
		case !last:
			at := slices.IndexFunc(node.Children, func(child *kong.Node) bool { return child.Name == word })
			switch {
			case at >= 0:
				node = node.Children[at]
			case len(node.Children) > 0:
				return nil // there is no such verb
			}
		}
	}
	for _, child := range node.Children {
		found = append(found, candidate{child.Name, child.Help})
	}
	for _, argument := range node.Positional {
		found = append(found, enumOf(argument)...)
	}
	return found
}

func flagNamed(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

func flagsOf(node *kong.Node) (found []candidate) {
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

func valuesOf(f *kong.Flag) []candidate {
	if f != nil && (f.Name == "file" || f.Tag.Type == "path") {
		return []candidate{{text: anyFile}}
	}
	if f == nil {
		return nil
	}
	return enumOf(f.Value)
}

func enumOf(v *kong.Value) (found []candidate) {
	for text := range strings.SplitSeq(v.Enum, ",") {
		if text != "" {
			found = append(found, candidate{text, v.Help})
		}
	}
	return found
}
