package program

import (
	"fmt"
	"runtime"

	"github.com/alecthomas/kong"

	"github.com/hookstart/hookstart/shared/ops"
)

// licence is the text that --version prints after "licence:". No licence has been chosen yet.
const licence = "none has been chosen yet: no permission beyond what the law gives"

// StandardFlags holds the flags that every program has, --version and --man. Each prints its text
// and ends the program.
type StandardFlags struct {
	Version versionFlag `help:"Print version, commit and build, and exit." env:"-"`
	// Man prints the manual page that the packages ship. It is hidden because people use --help.
	Man manFlag `help:"Print the manual page and exit." hidden:"" env:"-"`
}

type versionFlag bool

// BeforeReset prints the version and exits before kong evaluates any other flag. The version flag
// of package kong does the same.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	_, err := fmt.Fprintf(app.Stdout, "%s %s\ncommit: %s\nbuilt with: %s for %s/%s\nlicence: %s\n",
		app.Model.Name, ops.Version, ops.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH,
		licence)
	app.Exit(0)
	return err
}

type manFlag bool

// exitStatusVar is the kong variable that holds a program's own exit codes for its manual page.
const exitStatusVar = "exit-status"

// ExitStatusHelp adds a text to the program's manual page. The text describes the exit codes that
// the program has in addition to those of Main.
func ExitStatusHelp(text string) kong.Option { return kong.Vars{exitStatusVar: text} }

// BeforeReset prints the manual page and exits.
func (manFlag) BeforeReset(app *kong.Kong, vars kong.Vars) error {
	err := writeManual(app.Stdout, app.Model, ops.Version, vars[exitStatusVar])
	app.Exit(0)
	return err
}
