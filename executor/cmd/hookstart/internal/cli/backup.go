package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/backup"
	"github.com/hookstart/hookstart/shared/ops"
)

type adminBackupCmd struct {
	File         string `arg:"" help:"The file to make. One of that name is replaced once the new one is complete." type:"path"`
	WithMessages bool   `help:"With the messages of the streams: the inputs of executions, what is not run yet, and which deliveries were accepted in the dedup window." default:"true" negatable:""`

	natsFlags
}

func (*adminBackupCmd) Help() string {
	return `Executors and ingresses go on meanwhile. The file holds what opens the webhooks:
keep it like a password. With --secrets-key-file, tokens and secrets in it are
sealed, and a restore needs that file, too.

Example:

  hookstart admin backup hookstart-$(date +%F).backup`
}

func (v *adminBackupCmd) Run(s *session) error {
	installation, err := v.connectInstallation(s)
	if err != nil {
		return err
	}
	defer installation.JetStream.Conn().Close()
	done, err := backup.Take(s.ctx, installation, v.File, v.WithMessages)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) {
		return &hintError{
			fmt.Errorf("no backup was made: %w", err),
			"does an executor run, and may these credentials read every stream and consumer? " +
				"With deploy/nats: --nats-creds admin.nk",
		}
	}
	if err != nil && s.ctx.Err() != nil {
		return &hintError{
			errors.New("interrupted: no backup was made"),
			"a file of that name, if there was one, is as it was",
		}
	}
	if err != nil {
		return fmt.Errorf("no backup was made: %w", err)
	}
	return s.printSummary(done, v.File+" is complete"+requiredKeysText(done.KeyIDs)+".")
}

// requiredKeysText returns text to append to a sentence: a semicolon and a clause that names the
// keys needed for a restore. It returns "" if no keys are needed.
func requiredKeysText(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return "; a restore needs the --secrets-key-file with the key " + strings.Join(keys, ", ")
}

type adminRestoreCmd struct {
	File         string `arg:"" help:"The file that admin backup has made." type:"existingfile"`
	WithMessages bool   `help:"With the messages that the file holds." default:"true" negatable:""`
	Check        bool   `help:"Only say whether the file can be restored. It needs no installation, and changes nothing."`
	WithoutKeys  bool   `help:"Restore although executors or ingresses lack keys with which tokens or secrets are sealed: what is sealed with them is lost."`

	natsFlags
}

func (*adminRestoreCmd) Help() string {
	return `The installation must be empty, and an executor must run: it makes the streams and
the tables. Whatever is wrong with the file is said before anything is restored.
When the command ends, the webhooks work.

Examples:

  hookstart admin restore --check hookstart-2026-11-22.backup

  hookstart-local --no-demo --data-dir restored
  hookstart admin restore hookstart-2026-11-22.backup`
}

func (v *adminRestoreCmd) Run(s *session) error {
	if v.Check {
		found, err := backup.Check(v.File)
		if err != nil {
			return err
		}
		return s.printValue(found, func() error {
			return s.printLine("%s can be restored%s.", v.File, requiredKeysText(found.KeyIDs))
		})
	}
	installation, err := v.connectInstallation(s)
	if err != nil {
		return err
	}
	defer installation.JetStream.Conn().Close()
	done, err := backup.Restore(s.ctx, installation, v.File, backup.RestoreOptions{
		WithMessages:       v.WithMessages,
		AllowUndecryptable: v.WithoutKeys,
	})
	if _, lack := errors.AsType[*backup.MissingKeysError](err); lack {
		return &hintError{
			err,
			"give --secrets-key-file a file with these keys at every executor and ingress, or " +
				"accept the loss of what they seal: --without-keys",
		}
	}
	if _, notEmpty := errors.AsType[*backup.NotEmptyError](err); notEmpty {
		return &hintError{
			err,
			"a new one has no account and no workflow: hookstart-local --no-demo --data-dir NEW",
		}
	}
	if hint := unfinishedRestoreHint(err); hint != "" {
		if s.ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", err)
		}
		return &hintError{err, hint}
	}
	if err != nil {
		return err
	}
	return s.printSummary(done, v.File+" is restored.")
}

// unfinishedRestoreHint returns a hint for the error of a restore that had already begun, or "" for
// any other error.
func unfinishedRestoreHint(err error) string {
	if _, ok := errors.AsType[*backup.HalfRestoredError](err); ok {
		return "until then every webhook gets 503; a new one has a new NATS store and a new " +
			"database: hookstart-local --no-demo --data-dir NEW"
	}
	if _, ok := errors.AsType[*backup.RestoreUnconfirmedError](err); ok {
		return "keep this installation, and do not restore again: /readyz of an executor or an " +
			"ingress is 200 once it uses what was restored"
	}
	return ""
}

// connectInstallation connects to NATS and returns the installation to back up or to restore into.
// It reports progress on stdout unless the output is JSON. The caller must close the connection.
func (f natsFlags) connectInstallation(s *session) (backup.Installation, error) {
	progress := s.Out
	if s.jsonOutput {
		progress = io.Discard
	}
	js, err := f.connect(s.ctx)
	return backup.Installation{
		JetStream: js,
		API:       backupAPI{s.client, s.printNote},
		Version:   ops.Version,
		Progress:  progress,
	}, err
}

// printSummary prints the result of a backup or a restore: the manifest as JSON if -o json is set,
// otherwise text.
func (s *session) printSummary(manifest backup.Manifest, text string) error {
	return s.printValue(manifest, func() error { return s.printLine("%s", text) })
}

// backupAPI adapts the client of the operators' API to backup.API.
type backupAPI struct {
	*apiclient.Client

	note func(format string, args ...any) // prints a note for the operator
}

// Members implements backup.API. It omits processes of earlier versions, which do not announce
// their keys.
func (a backupAPI) Members(ctx context.Context) ([]backup.Member, error) {
	found, err := a.Client.Members(ctx)
	var members []backup.Member
	for _, m := range found.Items {
		if m.Version != "" {
			members = append(members, backup.Member{
				Name:   m.Role + " " + m.Instance,
				KeyIDs: m.KeyIDs,
			})
		}
	}
	return members, err
}

// accountAppliedTimeout is how long to wait until all processes have applied a restored registry.
const accountAppliedTimeout = time.Minute

// AwaitAccountApplied implements backup.API. It writes the account back unchanged, because the API
// answers such a call only once every running executor and ingress has applied the account's
// record.
func (a backupAPI) AwaitAccountApplied(ctx context.Context, accountID string) error {
	mayPass := func(err error) bool {
		p, ok := errors.AsType[*api.Problem](err)
		return err != nil && (!ok || p.Retryable || p.Code == api.CodeNotFound)
	}
	_, err := retryFor(ctx, accountAppliedTimeout, mayPass, func() (api.Account, error) {
		account, err := a.Account(ctx, accountID)
		if err != nil {
			return account, err
		}
		return a.PutAccount(ctx, account.ID, api.PutAccount{Name: account.Name, Plan: account.Plan})
	})
	if api.IsCode(err, api.CodeInvalid) {
		// The account's plan is not in this installation's catalog, so the account cannot be
		// written back. That is not a failure of the restore.
		a.note("The plan of the account %s, and perhaps of others, is not in this installation's "+
			"catalog: its webhooks are refused until it is. Set --plans as it was, and start the "+
			"executors anew.", accountID)
		return nil
	}
	return err
}
