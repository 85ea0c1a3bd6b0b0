package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionVerb struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
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

// Run implements the verb.
func (v *completionVerb) Run(s *session, model *kong.Application) error {
	write := map[string]func(io.Writer, []place){"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[v.Shell]
	write(s.Out, placesOf(model.Node, ""))
	return nil
}

// place is somewhere on a command line: what may come next.
type place struct {
	path  string // the words of the command so far: "", "workflow", "workflow list"
	words []word // commands, or the values of an argument
	flags []flag
}

type word struct{ text, help string }

type flag struct {
	names  []string // with their dashes
	help   string
	takes  bool // a value
	values []string
	file   bool // the value is a file's name
}

// placesOf are those of a command and of the commands below it. Flags of all commands come
// with each.
func placesOf(node *kong.Node, path string) []place {
	here := place{path: path}
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			here.flags = append(here.flags, flagOf(f))
		}
	}
	for _, argument := range node.Positional {
		for _, value := range enumOf(argument) {
			here.words = append(here.words, word{value, argument.Help})
		}
	}
	all := []place{here}
	for _, child := range node.Children {
		all[0].words = append(all[0].words, word{child.Name, child.Help})
		all = append(all, placesOf(child, strings.TrimSpace(path+" "+child.Name))...)
	}
	return all
}

func flagOf(f *kong.Flag) flag {
	one := flag{names: []string{"--" + f.Name}, help: f.Help, takes: !f.IsBool() && !f.IsCounter(), values: enumOf(f.Value)}
	if f.Short != 0 {
		one.names = append(one.names, "-"+string(f.Short))
	}
	one.file = one.takes && (f.Name == "file" || f.Tag.Type == "path")
	return one
}

func enumOf(v *kong.Value) []string {
	return slices.DeleteFunc(strings.Split(v.Enum, ","), func(text string) bool { return text == "" })
}

// valueFlags are the names of the flags that take a value, of all places.
func valueFlags(places []place) (names []string) {
	for _, p := range places {
		for _, f := range p.flags {
			if f.takes {
				names = append(names, f.names...)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// script writes lines of a script: there is nobody to tell when that fails.
func script(to io.Writer, lines ...string) {
	for _, line := range lines {
		_, _ = fmt.Fprintln(to, line)
	}
}

// quoted is a text in single quotes, for all three shells.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func textsOf(words []word) (texts []string) {
	for _, w := range words {
		texts = append(texts, w.text)
	}
	return texts
}

func namesOf(flags []flag) (names []string) {
	for _, f := range flags {
		names = append(names, f.names...)
	}
	return names
}

// bashCompletion works without the package bash-completion. Bash takes = for a word.
func bashCompletion(to io.Writer, places []place) {
	script(to, `# Completion of hookstart for bash. Made by: hookstart completion bash
_hookstart() {
  local cur=${COMP_WORDS[COMP_CWORD]} at= of= words= flags= values= word
  if [[ $cur == = ]]; then cur=; fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ $of && $word != = ]]; then of=; continue; fi
    case $word in
      `+strings.Join(valueFlags(places), "|")+`) of=$word ;;
      =|-*) ;;
      *) at="${at:+$at }$word" ;;
    esac
  done
  case $at in`)
	for _, p := range byDepth(places) {
		script(to, "    "+pattern(p)+")", "      words="+quoted(strings.Join(textsOf(p.words), " "))+" flags="+quoted(strings.Join(namesOf(p.flags), " ")))
		script(to, choices(p, "values=")...)
		script(to, "      ;;")
	}
	script(to, `  esac
  if [[ $of && $values == _files ]]; then
    COMPREPLY=($(compgen -f -- "$cur"))
    return
  elif [[ $of ]]; then
    words=$values
  elif [[ $cur == -* ]]; then
    words=$flags
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _hookstart hookstart`)
}

// choices set a shell's variable to what the flag in $of takes; to _files for a file's name.
func choices(p place, variable string) (lines []string) {
	for _, f := range p.flags {
		values := strings.Join(f.values, " ")
		if f.file {
			values = "_files"
		}
		if values != "" {
			lines = append(lines, "      case $of in "+strings.Join(f.names, "|")+") "+variable+quoted(values)+" ;; esac")
		}
	}
	return lines
}

// byDepth puts the deeper commands first: "workflow list"* would come after "workflow"*.
func byDepth(places []place) []place {
	sorted := slices.Clone(places)
	slices.SortStableFunc(sorted, func(a, b place) int { return len(strings.Fields(b.path)) - len(strings.Fields(a.path)) })
	return sorted
}

// pattern matches the words of a command: of one that others are below exactly, of others
// with its arguments.
func pattern(p place) string {
	if len(p.words) > 0 || p.path == "" {
		return `"` + p.path + `"`
	}
	return `"` + p.path + `"|"` + p.path + ` "*`
}

func zshCompletion(to io.Writer, places []place) {
	described := func(text, help string) string {
		return quoted(strings.ReplaceAll(text, ":", `\:`) + ":" + help)
	}
	script(to, `#compdef hookstart
# Completion of hookstart for zsh. Made by: hookstart completion zsh
_hookstart() {
  local at= of= values= word cur=$words[CURRENT]
  local -a found flags
  for word in $words[2,CURRENT-1]; do
    if [[ -n $of ]]; then of=; continue; fi
    case $word in
      `+strings.Join(valueFlags(places), "|")+`) of=$word ;;
      -*) ;;
      *) at="${at:+$at }$word" ;;
    esac
  done
  if [[ $cur == --*=* ]]; then of=${cur%%=*}; compset -P '*='; fi
  case $at in`)
	for _, p := range byDepth(places) {
		var words, flags []string
		for _, w := range p.words {
			words = append(words, described(w.text, w.help))
		}
		for _, f := range p.flags {
			for _, name := range f.names {
				flags = append(flags, described(name, f.help))
			}
		}
		script(to, "    "+pattern(p)+")", "      found=("+strings.Join(words, " ")+")", "      flags=("+strings.Join(flags, " ")+")")
		script(to, choices(p, "values=")...)
		script(to, "      ;;")
	}
	script(to, `  esac
  if [[ -n $of && $values == _files ]]; then
    _files
  elif [[ -n $of ]]; then
    compadd -- ${=values}
  elif [[ $cur == -* ]]; then
    _describe flag flags
  else
    _describe word found
  fi
}
if [[ $funcstack[1] == _hookstart ]]; then
  _hookstart
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
  compdef _hookstart hookstart
fi`)
}

func fishCompletion(to io.Writer, places []place) {
	script(to, `# Completion of hookstart for fish. Made by: hookstart completion fish
function __hookstart_words
  set -l at
  set -l of
  for word in (commandline -opc)[2..]
    if test -n "$of"
      set of
      continue
    end
    switch $word
      case `+strings.Join(valueFlags(places), " ")+`
        set of $word
      case '-*'
      case '*'
        set -a at $word
    end
  end
  echo "$at"
end
function __hookstart_at
  set -l at (__hookstart_words)
  test "$at" = "$argv"
end
function __hookstart_in
  set -l at (__hookstart_words)
  string match -q -- "$argv *" "$at "
end
complete -c hookstart -f`)
	for _, p := range places {
		condition := "-n " + quoted(strings.TrimSpace("__hookstart_at "+p.path))
		if len(p.words) == 0 {
			condition = "-n " + quoted("__hookstart_in "+p.path)
		}
		for _, w := range p.words {
			script(to, "complete -c hookstart "+condition+" -a "+quoted(w.text)+" -d "+quoted(w.help))
		}
		for _, f := range p.flags {
			line := []string{"complete -c hookstart", condition}
			for _, name := range f.names {
				if long, is := strings.CutPrefix(name, "--"); is {
					line = append(line, "-l", long)
				} else {
					line = append(line, "-s", strings.TrimPrefix(name, "-"))
				}
			}
			switch {
			case f.file:
				line = append(line, "-rF")
			case len(f.values) > 0:
				line = append(line, "-x -a", quoted(strings.Join(f.values, " ")))
			case f.takes:
				line = append(line, "-x")
			}
			script(to, strings.Join(line, " ")+" -d "+quoted(f.help))
		}
	}
}
