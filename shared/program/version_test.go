package program_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/program"
)

// ended is the value that the test's exit function panics with. The panic stops the parser, as an
// exit would.
type ended int

func printed(t *testing.T, flags any, arg string) (out string) {
	t.Helper()
	var stdout bytes.Buffer
	parser := kong.Must(flags, kong.Name("sample"), kong.Description("A sample."),
		kong.DefaultEnvars(program.EnvPrefix), program.ExitStatusHelp("7 for no-one."),
		kong.Writers(&stdout, &stdout), kong.Exit(func(code int) { panic(ended(code)) }))
	defer func() {
		if code, ok := recover().(ended); !ok || code != 0 {
			t.Errorf("%s ends with %v", arg, code)
		}
		out = stdout.String()
	}()
	_, err := parser.Parse([]string{arg})
	t.Errorf("%s does not end the program: %v", arg, err)
	return ""
}

func TestVersionSaysCommitBuildAndLicence(t *testing.T) {
	version, commit := ops.Version, ops.Commit
	defer func() { ops.Version, ops.Commit = version, commit }()
	ops.Version, ops.Commit = "v1.2.3", "abc of 2026-11-24T00:00:00Z"
	out := printed(t, &struct{ program.StandardFlags }{}, "--version")
	for _, want := range []string{
		"sample v1.2.3\n", "commit: abc of 2026-11-24T00:00:00Z\n", "built with: go1.",
		"licence: none has been chosen yet",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}

// The manual page contains each command and flag with its help, default and environment variable.
// It contains no text that roff would interpret by mistake.
func TestManual(t *testing.T) {
	var flags struct {
		program.StandardFlags
		Secret string `help:"Not for people." hidden:""`
		Go     struct {
			Where string `arg:"" help:"A place."`
			After string `help:"'Quoted' first, a back\\slash." default:".5s" placeholder:"TIME"`
			List  string `help:"Some, in order." default:"the-first-of-many-things,the-second-of-many-things,the-third-of-many-things,the-last"`
		} `cmd:"" help:"Go there."`
	}
	page := printed(t, &flags, "--man")
	for _, want := range []string{
		`.TH "SAMPLE" "1"`, `.SS "sample go"`, "Go there.\n", `.B "\-\-after=TIME"`,
		"\n" + `\&'Quoted' first, a back\eslash. Default: .5s.` + "\n",
		"Environment: HOOKSTART_AFTER.\n", `.B "<where>"`,
		"2 for wrong usage.\n" + `7 for no\-one.` + "\n",
		`Some, in order. Default: the\-first\-of\-many\-things,\:the`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	for _, hidden := range []string{"Not for people", "print the manual", `\-\-man`} {
		if strings.Contains(page, hidden) {
			t.Errorf("%q is in the page", hidden)
		}
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		cmd := exec.CommandContext(t.Context(), groff, "-man", "-K", "utf8", "-T", "utf8", "-ww",
			"-z")
		cmd.Stdin = strings.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff: %v: %s", err, out)
		}
	}
}
