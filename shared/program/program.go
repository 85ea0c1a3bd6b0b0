// Package program implements the parts that all Hookstart programs have in common: flags and
// environment variables, signals, errors and exit codes.
package program

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/hookstart/hookstart/shared/ops"
)

// EnvPrefix is the prefix of the environment variables for flags: --nats-url is HOOKSTART_NATS_URL.
const EnvPrefix = "HOOKSTART"

// Main is the main function of a program. C is a struct with kong's tags; Main sets its fields from
// the command line and the environment, and passes it to run. The context of run ends on SIGINT or
// SIGTERM. Main returns if run returns nil. It exits with code 1 if run fails, and with code 2 if
// the flags are invalid. Every program has the --version flag.
func Main[C any](name, description string, run func(context.Context, C) error) {
	var flags struct {
		Config C `embed:""`
		StandardFlags
	}
	parser, err := kong.New(&flags,
		kong.Name(name), kong.Description(description),
		kong.DefaultEnvars(EnvPrefix), PathMapper,
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		exitWithError(name, err, 2)
	}
	if _, err := parser.Parse(os.Args[1:]); err != nil {
		exitWithError(name, fmt.Errorf("%w; see %s --help", err, name), 2)
	}
	tuneMemory()
	// After the first signal the default handling is restored, so a second signal ends the program
	// immediately.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err = run(ctx, flags.Config)
	ops.FlushLog()
	if err != nil {
		exitWithError(name, err, 1)
	}
}

// Parse fills config from the given flags, and sets the defaults of all others. It ignores the
// environment.
func Parse(config any, flags ...string) error {
	parser, err := kong.New(config, PathMapper)
	if err != nil {
		return err
	}
	_, err = parser.Parse(flags)
	return err
}

// CheckPublicURL returns an error if value is not a valid public URL. An empty value is valid and
// means that there is no public URL.
func CheckPublicURL(flag, value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("%s must be like https://hooks.example.com", flag)
	}
	return nil
}

// ExitOnError writes err to stderr and exits with code 1, if err is not nil. It is for programs
// that do not use Main.
func ExitOnError(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func exitWithError(name string, err error, code int) {
	line := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	written := make(chan struct{})
	go func() {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, line)
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(time.Second): // a blocked stderr must not prevent the exit
	}
	os.Exit(code)
}
