package program

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// writeManual writes a program's manual page with the macros of man(7). The page contains the
// --help texts of the program and of each of its commands. The page of the command line tool
// belongs in section 1 (user commands), the pages of the services in section 8 (administration).
// exitStatus describes the exit codes that only this program has.
func writeManual(w io.Writer, app *kong.Application, version, exitStatus string) error {
	page := &manualWriter{Writer: bufio.NewWriter(w)}
	section := "8"
	if len(app.Children) > 0 {
		section = "1"
	}
	page.writeMacro("TH", strings.ToUpper(app.Name), section, "", "hookstart "+version, "hookstart")
	fmt.Fprintln(page, ".nh\n.ad l") // no hyphenation, no justified lines
	page.writeMacro("SH", "NAME")
	page.writeEscapedText(app.Name + " \\- " + escapeRoff(app.Help))
	page.writeMacro("SH", "SYNOPSIS")
	page.writeMacro("B", app.Name)
	page.writeEscapedText(escapeRoff(strings.TrimPrefix(app.Summary(), app.Name)))
	if len(app.Children) > 0 {
		page.writeMacro("SH", "COMMANDS")
		for _, leaf := range app.Leaves(true) {
			page.writeMacro("SS", leaf.FullPath())
			page.writeEscapedText(escapeRoff(leaf.Help))
			page.writePreformatted(leaf.Detail)
			page.writePositionals(leaf.Positional)
			for _, flags := range visibleFlagsByCommand(leaf) {
				page.writeFlags(flags)
			}
		}
	}
	page.writeMacro("SH", "OPTIONS")
	page.writeFlags(visibleFlags(app.Flags))
	page.writeMacro("SH", "ENVIRONMENT")
	page.writeEscapedText("Each option is also an environment variable, which is named beside " +
		"it; an option on the command line wins.")
	page.writeMacro("SH", "EXIT STATUS")
	page.writeEscapedText("0 for success, 1 for a failure, 2 for wrong usage.\n" +
		escapeRoff(exitStatus))
	return page.Flush()
}

// visibleFlagsByCommand returns the visible flags of a command and of its parent commands. The
// result has one slice for each command, beginning with the given one. The flags of the program
// itself are omitted.
func visibleFlagsByCommand(leaf *kong.Node) (all [][]*kong.Flag) {
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

// manualWriter writes lines of a manual page. Flush returns the first error.
type manualWriter struct{ *bufio.Writer }

// writeMacro writes a line like .SH NAME, with its arguments quoted.
func (m *manualWriter) writeMacro(name string, args ...string) {
	fmt.Fprintf(m, ".%s", name)
	for _, arg := range args {
		fmt.Fprintf(m, " \"%s\"", strings.ReplaceAll(escapeRoff(arg), `"`, `\(dq`))
	}
	fmt.Fprintln(m)
}

// writeEscapedText writes text that is already escaped. It puts \& before a line that begins with .
// or ', because roff would otherwise read the line as a macro.
func (m *manualWriter) writeEscapedText(text string) {
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		fmt.Fprintln(m, line)
	}
}

// writePreformatted writes text and preserves its lines and columns.
func (m *manualWriter) writePreformatted(text string) {
	if text == "" {
		return
	}
	fmt.Fprintln(m, ".PP\n.nf")
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		fmt.Fprintf(m, "\\&%s", escapeRoff(line))
	}
	fmt.Fprintln(m, ".fi")
}

func (m *manualWriter) writePositionals(positionals []*kong.Value) {
	for _, value := range positionals {
		m.writeEntry(value.Summary(), value.Help, "")
	}
}

func (m *manualWriter) writeFlags(flags []*kong.Flag) {
	for _, flag := range flags {
		help := flag.Help
		if flag.HasDefault && flag.Default != "" {
			help += " Default: " + flag.Default + "."
		}
		m.writeEntry(flag.String(), help, strings.Join(flag.Envs, ", "))
	}
}

func (m *manualWriter) writeEntry(term, help, variables string) {
	fmt.Fprintln(m, ".TP")
	m.writeMacro("B", term)
	m.writeEscapedText(escapeRoff(help))
	if variables != "" {
		fmt.Fprintf(m, "Environment: %s.\n", escapeRoff(variables))
	}
}

// escapeRoff returns text with the special characters of roff escaped. A hyphen becomes a minus, so
// that an option can be copied from the page. A list without spaces may be broken after each comma.
func escapeRoff(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, ", ", ", ", ",", `,\:`).Replace(text)
}
