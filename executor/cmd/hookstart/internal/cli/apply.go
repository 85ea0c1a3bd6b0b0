package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/manifest"
)

type exportCmd struct{}

func (*exportCmd) Run(s *session) error {
	have, err := manifest.ReadInstallation(s.ctx, s.client)
	if err != nil {
		return err
	}
	return have.Write(s.Out)
}

type applyCmd struct {
	File      []string `short:"f" required:"" help:"A file with YAML documents, - for stdin. It may be given several times." placeholder:"FILE" sep:"none"`
	MoreFiles []string `arg:"" optional:"" name:"file" help:"More files: -f *.yaml."`
	DryRun    bool     `help:"Only show the differences. The exit code is 3 if there are any, and only then."`
	Prune     bool     `help:"Delete the accounts, workflows and senders that no document describes."`
}

func (*applyCmd) Help() string {
	return `The differences are shown before anything is changed. A second apply of the same
files changes nothing. A new sender takes its secrets from the environment
variables that its document names in secretsFrom.

Examples:

  hookstart export > hookstart.yaml
  hookstart apply -f hookstart.yaml --dry-run
  hookstart apply -f hookstart.yaml --prune`
}

// exitDifferencesFound is the exit code of a dry run that found differences.
const exitDifferencesFound exitCode = 3

func (v *applyCmd) Run(s *session) error {
	want := &manifest.DocumentSet{}
	for _, file := range append(v.File, v.MoreFiles...) {
		if err := readDocuments(want, file, s.In); err != nil {
			return err
		}
	}
	if v.Prune && want.IsEmpty() {
		return &usageError{
			"the files hold no document: --prune would delete everything",
			"look at what wrote them, such as a pipe whose first program failed",
		}
	}
	have, err := manifest.ReadInstallation(s.ctx, s.client)
	if err != nil {
		return err
	}
	if err := manifest.CheckNoSecretValues(have, want); err != nil {
		return err
	}
	steps := manifest.Plan(have, want, v.Prune)
	if len(steps) == 0 {
		return s.printLine("No differences.")
	}
	for _, step := range steps {
		for _, line := range step.DescriptionLines {
			if err := s.printLine("%s", line); err != nil {
				return err
			}
		}
	}
	if v.DryRun {
		panic(exitDifferencesFound)
	}
	failed := 0
	failedKeys := map[string]bool{}
	for _, step := range steps {
		do := step.Apply
		if at := slices.IndexFunc(step.DependsOn, func(key string) bool {
			return failedKeys[key]
		}); at >= 0 {
			do = func(context.Context, *apiclient.Client) error {
				return fmt.Errorf("not done, because the %s was not made", step.DependsOn[at])
			}
		}
		if err := do(s.ctx, s.client); err != nil {
			failed++
			failedKeys[step.Key()] = true
			place := strings.TrimSuffix(want.AddLocation(step.Key(), err).Error(), err.Error())
			_ = printError(s.Err, errors.New(place+step.DescriptionLines[0]+": "+errorMessage(err)))
		}
	}
	if failed > 0 {
		return &hintError{
			fmt.Errorf("%d of %d differences remain", failed, len(steps)),
			"mend what is said above, and apply the same files again",
		}
	}
	return s.printLine("Applied: %d differences.", len(steps))
}

func readDocuments(into *manifest.DocumentSet, file string, stdin io.Reader) (err error) {
	if file == "-" {
		return into.Read(file, stdin)
	}
	opened, err := os.Open(file) //nolint:gosec // the operator's own file
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	return into.Read(file, opened)
}
