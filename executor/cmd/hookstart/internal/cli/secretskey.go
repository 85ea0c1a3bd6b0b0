package cli

import (
	"errors"

	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/seal"
)

type adminSecretsKeyCmd struct{}

func (*adminSecretsKeyCmd) Help() string {
	return `Prints a line for the file that executors and ingresses get as --secrets-key-file.
The first line seals, all of them open. To change the key: put a new line first,
restart every ingress and executor, run hookstart admin reseal, then take the old
line out.

Example:

  hookstart admin secrets-key`
}

func (*adminSecretsKeyCmd) Run(s *session) error { return s.printLine("%s", seal.NewKeyLine()) }

// adminResealCmd implements "hookstart admin reseal", which encrypts all tokens and secrets in NATS
// again with the first key of a file. It connects to NATS directly, so that it works even if a
// missing key keeps every executor from starting.
type adminResealCmd struct {
	natsFlags
	SecretsKeyFile string `help:"File with the keys, as for executors: the first seals, all open." type:"path"`
}

func (*adminResealCmd) Help() string {
	return `Everything may run meanwhile. Tokens that were stored in clear are sealed, too. NATS
may keep what was overwritten in its files until it compacts them.

Example:

  hookstart admin reseal --secrets-key-file secrets.key`
}

// resealRecordsPerReport is the approximate number of records that are read between two reports of
// progress.
const resealRecordsPerReport = 10_000

func (v *adminResealCmd) Run(s *session) error {
	keys, err := seal.ReadKeyFile(v.SecretsKeyFile)
	if err != nil {
		return err
	}
	if !keys.CanSeal() {
		return &usageError{
			"--secrets-key-file is missing", "hookstart admin secrets-key makes a key",
		}
	}
	js, err := v.connect(s.ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	noted := 0
	done, err := edit.Reseal(s.ctx, js, keys, newDiscardLogger(), func(sofar edit.ResealResult) {
		if sofar.RecordsRead-noted >= resealRecordsPerReport {
			noted = sofar.RecordsRead
			s.printNote("%d records read, %d sealed anew", sofar.RecordsRead, sofar.RecordsWritten)
		}
	})
	switch {
	case errors.Is(err, seal.ErrNoKey):
		return &hintError{err, "add that key's line to the file, below the new one"}
	case err != nil:
		return err
	}
	return s.printLine("%d records read, %d sealed anew", done.RecordsRead, done.RecordsWritten)
}
