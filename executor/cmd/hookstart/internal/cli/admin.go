package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/replicas"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

type adminCmds struct {
	CheckURL adminCheckURLCmd `cmd:"" name:"check-url" help:"Check that the public URL leads to this installation." detail:"The executor calls the public URL, and sees whether an ingress of this installation answers. It starts nothing. If none does, the exit code is 1." example:"hookstart admin check-url"`
	Replicas adminReplicasCmd `cmd:"" help:"Change how many NATS servers keep the streams and the registry."`
	Stream   adminStreamCmd   `cmd:"" help:"Show or change how long messages are kept and delivery IDs remembered."`
	Size     adminSizeCmd     `cmd:"" help:"Show how far the installation is from each of its limits."`
	Versions adminVersionsCmd `cmd:"" help:"Show which executors and ingresses run, and in which versions." detail:"The first thing to look at before an upgrade, and after it. An executor says which version of the database's tables it works with: one whose version is lower than the tables' waits, records nothing, and is not ready." example:"hookstart admin versions"`
	Backup   adminBackupCmd   `cmd:"" help:"Copy the installation into one file while it runs."`
	Restore  adminRestoreCmd  `cmd:"" help:"Put a backup into an empty installation."`

	SecondSite secondSiteCmds `cmd:"" name:"second-site" help:"Copy the streams and the registry to a second site, and let it take over."`

	SecretsKey adminSecretsKeyCmd `cmd:"" name:"secrets-key" help:"Make a key for --secrets-key-file."`
	Reseal     adminResealCmd     `cmd:"" help:"Seal every token and secret with the first key."`
}

// newDiscardLogger returns a logger that discards everything. Commands pass it to functions that
// need a logger, because the command's error tells users all that they need to know.
func newDiscardLogger() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// natsFlags holds the flags of verbs that connect to NATS directly.
type natsFlags struct {
	NATSURL   string `name:"nats-url" help:"NATS servers, comma-separated." default:"nats://127.0.0.1:4222"`
	NATSCreds string `name:"nats-creds" help:"Credentials file for NATS: of the role that the work needs." type:"path"`
	NATSCA    string `name:"nats-ca" help:"File with the certificate authority of the NATS servers." type:"path"`
}

// connect connects to NATS. The caller must close the connection.
func (f natsFlags) connect(ctx context.Context) (jetstream.JetStream, error) {
	nc, err := bus.Connect(ctx, bus.Options{
		URL:            f.NATSURL,
		Name:           "hookstart admin",
		ConnectTimeout: 5 * time.Second,
		CredsFile:      f.NATSCreds,
		CAFile:         f.NATSCA,
		Log:            newDiscardLogger(),
	})
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(30*time.Second))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	return js, nil
}

// adminReplicasCmd changes the number of replicas directly in NATS: executors set that number only
// when they create the streams.
type adminReplicasCmd struct {
	Number int `arg:"" help:"1, 3 or 5. The NATS cluster needs at least as many servers." placeholder:"NUMBER"`

	natsFlags

	RegistryCopyPrefix string        `name:"registry-copy" help:"API prefix of the NATS account that holds a copy of the registry, as for executors: FEED.API with the configuration of deploy/nats. Empty: no copy." placeholder:"PREFIX"`
	Wait               time.Duration `help:"How long to wait until the new replicas hold everything. They continue to catch up after that." default:"10m"`
}

func (*adminReplicasCmd) Help() string {
	return `Changes a running installation, and shows how far the new replicas are until they
hold everything. Set HOOKSTART_REPLICAS of the executors to the same number, for what they
make anew.

Example:

  hookstart admin replicas 1`
}

func (v *adminReplicasCmd) Run(s *session) error {
	if v.Number != 1 && v.Number != 3 && v.Number != 5 {
		return &usageError{
			fmt.Sprintf("replicas must be 1, 3 or 5, not %d", v.Number),
			"hookstart admin replicas --help",
		}
	}
	js, err := v.connect(s.ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	ctx, cancel := context.WithTimeout(s.ctx, v.Wait)
	defer cancel()
	last := replicas.State{}
	progress := func(r replicas.State) {
		if r == last {
			return
		}
		last = r
		state := "catching up"
		if r.IsComplete() {
			state = "done"
		}
		_, _ = fmt.Fprintf(s.Out,
			"%-22s %d of %d replicas hold everything, %d operations behind: %s\n", r.Stream,
			r.CompleteReplicas, r.WantedReplicas, r.LagOperations, state)
	}
	names := append([]string{
		stream.ExecutionsName, stream.ProgressName, stream.ReportsName, stream.CancellationsStream,
	}, registry.Streams()...)
	owned, err := stream.QueuesWithOwnStreams(ctx, js)
	if err != nil {
		return err
	}
	for _, own := range owned {
		if own.Limits.Replicas == 0 { // keep a number set by an operator
			names = append(names, stream.OwnStreamName(own.Queue),
				stream.OwnProgressStreamName(own.Queue))
		}
	}
	if err := replicas.Set(ctx, js, names, v.Number, progress); err != nil ||
		v.RegistryCopyPrefix == "" {
		return withTooFewServersHint(err)
	}
	copies, err := jetstream.NewWithAPIPrefix(js.Conn(), v.RegistryCopyPrefix)
	if err != nil {
		return fmt.Errorf("--registry-copy: %w", err)
	}
	last = replicas.State{} // the copied stream has the same name as the original
	_, _ = fmt.Fprintln(s.Out, "the registry's copy:")
	return withTooFewServersHint(replicas.Set(ctx, copies, registry.MirrorStreams(), v.Number,
		progress))
}

// withTooFewServersHint adds a hint to an error about too few NATS servers. It returns any other
// error unchanged.
func withTooFewServersHint(err error) error {
	if errors.Is(err, stream.ErrTooFewServers) {
		return &hintError{
			err, "deploy/nats has the configuration of a cluster; --nats-url names its servers",
		}
	}
	return err
}
