// Package cli implements the hookstart command line: its verbs, their output and their error
// messages.
package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/program"
)

const programDescription = "The command line of hookstart, for operators and runners. " +
	"Start with: hookstart workflow list"

// commandLine defines the verbs (subcommands), and the flags that all of them have.
type commandLine struct {
	APIURL                string `name:"api-url" help:"Address of the operators' API." default:"http://127.0.0.1:8081" group:"all"`
	APICA                 string `name:"api-ca" help:"File with the certificate authority of the operators' API, for https with a certificate of one's own. Empty: the system's." type:"path" group:"all"`
	AdminToken            string `help:"The admin token, or a key. Better set it in the environment: other users may see a command's flags." placeholder:"TOKEN" group:"all"`
	Output                string `short:"o" help:"table, for people; json, for scripts: the API's answer, unchanged." enum:"table,json" default:"table" group:"all"`
	program.StandardFlags `group:"all"`

	Plan       planCmds       `cmd:"" help:"What accounts may do."`
	Account    accountCmds    `cmd:"" help:"Accounts: each has a plan and owns workflows."`
	Workflow   workflowCmds   `cmd:"" help:"Workflows with their webhook trigger nodes."`
	Trigger    triggerCmds    `cmd:"" help:"Webhook trigger nodes: URL, tokens, sample payload, filter, answer."`
	Sender     senderCmds     `cmd:"" help:"Who calls a trigger node: how its requests are verified."`
	Execution  executionCmds  `cmd:"" help:"What was started, and how it ended."`
	Queue      queueCmds      `cmd:"" help:"What waits for runners, and which runners are there."`
	DeadLetter deadLetterCmds `cmd:"" help:"Failed executions, and messages that were put aside."`
	Key        keyCmds        `cmd:"" help:"Keys: who may call the API, and what they may do and see."`
	Whoami     whoamiCmd      `cmd:"" help:"Show whose token or key this is, and what it may do." example:"hookstart whoami"`
	Audit      auditCmds      `cmd:"" help:"Who changed what."`
	Export     exportCmd      `cmd:"" help:"Print the installation as YAML documents." detail:"YAML documents of accounts, workflows and senders; tokens and secrets are not in them. What the key does not see is left out." example:"hookstart export > hookstart.yaml"`
	Apply      applyCmd       `cmd:"" help:"Make the installation what YAML files describe."`
	Admin      adminCmds      `cmd:"" help:"The installation itself."`
	Run        runCmd         `cmd:"" help:"Run a program, or post to a URL, for each execution of a queue."`

	Completion completionCmd `cmd:"" help:"Print a script that lets a shell complete commands."`
}

// StdStreams holds the standard input, output and error streams of a program.
type StdStreams struct {
	In       io.Reader
	Out, Err io.Writer
}

// exitCode is an exit code. A value of this type is passed to panic to end a command early, for
// example after kong has printed help or the version.
type exitCode int

// Run runs one command and returns its exit code: 0 for success, 1 for a failure, 2 for a usage
// error, 3 for differences found by a dry run.
func Run(ctx context.Context, args []string, std StdStreams) (code int) {
	defer func() {
		switch left := recover().(type) {
		case nil:
		case exitCode:
			code = int(left)
		default:
			panic(left)
		}
	}()
	var given commandLine
	parser := newParser(&given, std)
	command, err := parser.Parse(args)
	if err != nil {
		return printError(std.Err, toUsageError(err))
	}
	s, err := given.newSession(ctx, std, command.Command())
	if err == nil {
		err = command.Run(s, parser.Model)
	}
	if err != nil {
		return printError(std.Err, given.withHint(ctx, command.Command(), err))
	}
	return 0
}

// exampleHelpOption extends the help of each verb that has an example tag: with the text of its
// detail tag, if there is one, and with the examples of the example tag, one per line.
var exampleHelpOption = kong.PostBuild(func(k *kong.Kong) error {
	return kong.Visit(k.Model.Node, func(v kong.Visitable, next kong.Next) error {
		if node, ok := v.(*kong.Node); ok && node.Tag != nil && node.Tag.Has("example") {
			node.Detail = strings.TrimSpace(node.Tag.Get("detail") + "\n\nExample:\n\n  " +
				strings.ReplaceAll(node.Tag.Get("example"), "\n", "\n  "))
		}
		return next(nil)
	})
})

// newParser returns a parser that parses arguments into flags. After printing help or the version,
// the parser panics with an exitCode.
func newParser(into *commandLine, std StdStreams) *kong.Kong {
	return kong.Must(
		into,
		kong.Name("hookstart"),
		kong.Description(programDescription),
		verbEnvarsOption,
		exampleHelpOption,
		kong.DefaultEnvars(program.EnvPrefix),
		program.ExitStatusHelp("3 for differences found by apply --dry-run."),
		program.PathMapper,
		idMapper,
		nodeIDMapper,
		kong.ExplicitGroups([]kong.Group{{Key: "all", Title: "Flags of all verbs:"}}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(std.Out, std.Err),
		kong.Exit(func(code int) { panic(exitCode(code)) }),
	)
}

// session holds what a verb needs to run, such as the standard streams, the API client and the
// output format.
type session struct {
	StdStreams
	ctx              context.Context
	client           *apiclient.Client
	jsonOutput       bool
	lastResponseBody []byte // body of the API's last response
	now              func() time.Time
}

// worksWithoutAPI reports whether a command works without the operators' API. Such a command needs
// no admin token.
func worksWithoutAPI(command string) bool {
	verb, _, _ := strings.Cut(command, " ")
	return verb == "run" || verb == "completion" || strings.HasPrefix(command, "admin replicas") ||
		strings.HasPrefix(command, "admin stream") ||
		strings.HasPrefix(command, "admin second-site ") ||
		command == "admin secrets-key" || command == "admin reseal"
}

func (f *commandLine) newSession(
	ctx context.Context, std StdStreams, command string,
) (*session, error) {
	token := strings.TrimSpace(f.AdminToken)
	if token == "" && !worksWithoutAPI(command) && !f.Admin.Restore.Check {
		return nil, &usageError{"the admin token is missing", setTokenHint}
	}
	at, err := url.Parse(f.APIURL)
	if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" {
		return nil, &usageError{
			"--api-url must be like http://127.0.0.1:8081",
			"hookstart --help lists the flags that all verbs have",
		}
	}
	s := &session{StdStreams: std, ctx: ctx, jsonOutput: f.Output == "json", now: time.Now}
	s.client = apiclient.New(f.APIURL, token).WithBodyTap(func(body []byte) {
		s.lastResponseBody = body
	})
	if f.APICA != "" {
		transport, err := newTransportTrusting(f.APICA)
		if err != nil {
			return nil, fmt.Errorf("--api-ca: %w", err)
		}
		s.client = s.client.WithTransport(transport)
	}
	return s, nil
}

// newTransportTrusting returns a transport that trusts only the certificate authorities in a file.
func newTransportTrusting(caFile string) (http.RoundTripper, error) {
	content, err := os.ReadFile(caFile) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s holds no certificate", caFile)
	}
	//nolint:forcetypeassert,errcheck // net/http's own
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	return transport, nil
}
