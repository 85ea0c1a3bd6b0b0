package program

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// writeManual writes a program's manual page with the macros of man(7). The page contains the
// --help texts of the program and of each of its verbs. The page of the command line tool belongs
// in section 1 (user commands), the pages of the services in section 8 (administration). exitStatus
// describes the exit codes that only this program has.
func writeManual(w io.Writer, app *kong.Application, version, exitStatus string) error {
	page := &manual{Writer: bufio.NewWriter(w)}
	section := "8"
	if len(app.Children) > 0 {
		section = "1"
	}
	page.macro("TH", strings.ToUpper(app.Name), section, "", "hookstart "+version, "hookstart")
	fmt.Fprintln(page, ".nh\n.ad l") // no hyphenation, no justified lines
	page.macro("SH", "NAME")
	page.text(app.Name + " \\- " + escape(app.Help))
	page.macro("SH", "SYNOPSIS")
	page.macro("B", app.Name)
	page.text(escape(strings.TrimPrefix(app.Summary(), app.Name)))
	if len(app.Children) > 0 {
		page.macro("SH", "COMMANDS")
		for _, leaf := range app.Leaves(true) {
			page.macro("SS", leaf.FullPath())
			page.text(escape(leaf.Help))
			page.preformatted(leaf.Detail)
			page.values(leaf.Positional)
			for _, flags := range flagsOf(leaf) {
				page.flags(flags)
			}
		}
	}
	page.macro("SH", "OPTIONS")
	page.flags(visibleFlags(app.Flags))
	page.macro("SH", "ENVIRONMENT")
	page.text("Each option is also an environment variable, which is named beside it; an option " +
		"on the command line wins.")
	page.macro("SH", "EXIT STATUS")
	page.text("0 for success, 1 for a failure, 2 for wrong usage.\n" + escape(exitStatus))
	return page.Flush()
}

// flagsOf returns the visible flags of a verb, followed by those of its parent verbs, in one slice
// for each verb. The flags of the program itself are omitted.
func flagsOf(leaf *kong.Node) (all [][]*kong.Flag) {
	for node := leaf; node != nil && node.Parent != nil; node = node.Parent {
		all = append(all, visibleFlags(node.Flags))
	}
	return all
}

func visibleFlags(flags []*kong.Flag) (shown []*kong.Flag) {
	for _, flag := range flags {
		if !flag.Hidden {
			shown = append(shown, flag)
		}
	}
	return shown
}

// manual writes lines of a manual page. Flush returns the first error.
type manual struct{ *bufio.Writer }

// macro writes a line like .SH NAME, with its arguments quoted.
func (m *manual) macro(name string, args ...string) {
	fmt.Fprintf(m, ".%s", name)
	for _, arg := range args {
		fmt.Fprintf(m, " \"%s\"", strings.ReplaceAll(escape(arg), `"`, `\(dq`))
	}
	fmt.Fprintln(m)
}

// text writes text that is already escaped. A line that begins with a roff control character would
// be read as a macro, so it is prefixed.
func (m *manual) text(text string) {
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		fmt.Fprintln(m, line)
	}
}

// preformatted writes text and preserves its lines and columns.
func (m *manual) preformatted(text string) {
	if text == "" {
		return
	}
	fmt.Fprintln(m, ".PP\n.nf")
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		fmt.Fprintf(m, "\\&%s", escape(line))
	}
	fmt.Fprintln(m, ".fi")
}

func (m *manual) values(values []*kong.Value) {
	for _, value := range values {
		m.entry(value.Summary(), value.Help, "")
	}
}

func (m *manual) flags(flags []*kong.Flag) {
	for _, flag := range flags {
		help := flag.Help
		if flag.HasDefault && flag.Default != "" {
			help += " Default: " + flag.Default + "."
		}
		m.entry(flag.String(), help, strings.Join(flag.Envs, ", "))
	}
}

func (m *manual) entry(term, help, variables string) {
	fmt.Fprintln(m, ".TP")
	m.macro("B", term)
	m.text(escape(help))
	if variables != "" {
		fmt.Fprintf(m, "Environment: %s.\n", escape(variables))
	}
}

// escape returns text with the special characters of roff escaped. A hyphen becomes a minus, so
// that an option can be copied from the page. A list without spaces may be broken after each comma.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, ", ", ", ", ",", `,\:`).Replace(text)
}
