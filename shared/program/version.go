package program

import (
	"fmt"
	"runtime"

	"github.com/alecthomas/kong"

	"github.com/hookstart/hookstart/shared/ops"
)

// licence is what --version prints about the license. None has been chosen yet.
const licence = "none has been chosen yet: no permission beyond what the law gives"

// Version holds flags that every program has: they print something and exit.
type Version struct {
	Version versionFlag `help:"Print version, commit and build, and exit." env:"-"`
	// Man prints the manual page that the packages ship. It is hidden because people use --help.
	Man manFlag `help:"Print the manual page and exit." hidden:"" env:"-"`
}

type versionFlag bool

// BeforeReset prints the version before anything else is evaluated, like kong's own version flag.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	_, err := fmt.Fprintf(app.Stdout, "%s %s\ncommit: %s\nbuilt with: %s for %s/%s\nlicence: %s\n",
		app.Model.Name, ops.Version, ops.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH,
		licence)
	app.Exit(0)
	return err
}

type manFlag bool

// exitStatusVar is the name of the variable that ExitStatus sets.
const exitStatusVar = "exit-status"

// ExitStatus adds text to the manual page of a program that has exit codes beside those of Main.
func ExitStatus(text string) kong.Option { return kong.Vars{exitStatusVar: text} }

// BeforeReset prints the manual page.
func (manFlag) BeforeReset(app *kong.Kong, vars kong.Vars) error {
	err := writeManual(app.Stdout, app.Model, ops.Version, vars[exitStatusVar])
	app.Exit(0)
	return err
}
