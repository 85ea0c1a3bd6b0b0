package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
)

type senderCmds struct {
	List   senderListCmd   `cmd:"" help:"List the kinds of senders." example:"hookstart sender list\nhookstart sender list stripe"`
	Show   senderShowCmd   `cmd:"" help:"Show who calls a trigger node." detail:"Secrets are never shown again, only their last characters." example:"hookstart sender set demo --preset plain\nhookstart sender show demo"`
	Set    senderSetCmd    `cmd:"" help:"Say who calls a trigger node: only its requests are accepted then."`
	Rotate senderRotateCmd `cmd:"" help:"Add a secret, and end the others."`
	Remove senderRemoveCmd `cmd:"" help:"End one secret, or go back to the token alone." example:"hookstart sender set demo --preset plain\nhookstart sender remove demo"`
}

type senderListCmd struct {
	Preset string `arg:"" optional:"" help:"Show all that is known of one, by its ID."`
}

func (v *senderListCmd) Run(s *session) error {
	presets, err := s.client.SenderPresets(s.ctx)
	if err != nil {
		return err
	}
	if v.Preset != "" {
		for _, p := range presets.Items {
			if p.ID == v.Preset || slices.Contains(p.Aliases, v.Preset) {
				return s.printResponse(func() error { return s.showPreset(p) })
			}
		}
		return &usageError{fmt.Sprintf("there is no preset %q", v.Preset), "hookstart sender list"}
	}
	return s.printResponse(func() error {
		table := [][]string{{"PRESET", "VERIFIES", "SENDER"}}
		for _, p := range presets.Items {
			table = append(table, []string{p.ID, yesNo(p.Verifies), p.Title})
		}
		return s.printRows(table)
	})
}

func (s *session) showPreset(p api.SenderPreset) error {
	rows := [][]string{
		{"Preset", strings.Join(append([]string{p.ID}, p.Aliases...), ", ")}, {"Sender", p.Title}, {
			"Docs", p.Docs,
		},
	}
	if p.Secret != nil {
		rows = append(rows, []string{"Secret", p.Secret.Label})
	}
	for _, setting := range p.Settings {
		text := setting.Name + ": " + setting.Label
		switch {
		case setting.Required:
			text += " (required)"
		case setting.Default != "":
			text += " (default: " + setting.Default + ")"
		}
		rows = append(rows, []string{"Setting", text})
	}
	if len(p.DeliveryID) > 0 {
		rows = append(rows, []string{"Delivery ID", strings.Join(p.DeliveryID, ", ")})
	}
	for i, step := range p.Setup {
		rows = append(rows, []string{fmt.Sprintf("Step %d", i+1), step})
	}
	for _, text := range p.Handshakes {
		rows = append(rows, []string{"Handshake", text})
	}
	for _, note := range p.Notes {
		rows = append(rows, []string{"Note", note})
	}
	return s.printRows(rows)
}

type senderShowCmd struct{ nodeArgs }

func (v *senderShowCmd) Run(s *session) error {
	id, err := v.resolveNodeID(s)
	if err != nil {
		return err
	}
	stored, err := s.client.Sender(s.ctx, v.Workflow, id)
	return s.showSender(stored, v.withSenderHint(err))
}

// withSenderHint adds a hint if err is a not-found error: the command that sets a sender for the
// node. It returns any other error unchanged.
func (n *nodeArgs) withSenderHint(err error) error {
	if isNotFound(err) {
		return &hintError{
			err,
			"hookstart sender set " + n.Workflow +
				" --preset PRESET; hookstart sender list shows the presets",
		}
	}
	return err
}

type senderSetCmd struct {
	nodeArgs
	Preset     string            `help:"The kind of sender: hookstart sender list." required:""`
	SecretFile string            `help:"File with its secrets, one a line, the newest first; - is stdin. Default: those that are there stay." placeholder:"FILE"`
	Setting    map[string]string `help:"A setting of the preset. Repeatable." placeholder:"NAME=VALUE" mapsep:"none"`
}

func (*senderSetCmd) Help() string {
	return `From the very next request on, only what the sender has signed is accepted.
hookstart sender list PRESET says what to paste where. The secret is read from a
file, because other users may see a command's arguments.

Example:

  echo my-secret | hookstart sender set demo --preset github --secret-file -`
}

func (v *senderSetCmd) Run(s *session) error {
	id, err := v.resolveNodeID(s)
	if err != nil {
		return err
	}
	put := api.PutSender{Preset: v.Preset, Settings: v.Setting}
	if v.SecretFile != "" {
		if put.Secrets, err = s.readSecretsFile(v.SecretFile); err != nil {
			return err
		}
	}
	stored, err := s.client.PutSender(s.ctx, v.Workflow, id, put)
	return s.showSender(stored, v.withPresetHint(err))
}

// withPresetHint adds a hint to an error about the preset or its settings: the command that lists
// them. It returns other errors unchanged.
func (v *senderSetCmd) withPresetHint(err error) error {
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		return err
	}
	for _, wrong := range p.Errors {
		switch {
		case wrong.Field == "preset":
			return &hintError{err, "hookstart sender list"}
		case strings.HasPrefix(wrong.Field, "settings"):
			return &hintError{
				err,
				"hookstart sender list " + v.Preset +
					" shows its settings; --setting NAME=VALUE sets one",
			}
		}
	}
	return err
}

// readSecretsFile returns the secrets in a file with one secret per line. It reads stdin if path is
// "-".
func (s *session) readSecretsFile(path string) ([]string, error) {
	text, err := s.readInputFile("--secret-file", path)
	if err != nil {
		return nil, err
	}
	secrets := strings.Split(strings.TrimRight(strings.ReplaceAll(string(text), "\r\n", "\n"),
		"\n"), "\n")
	if len(secrets) == 1 && secrets[0] == "" {
		return nil, &usageError{"there is no secret in " + path, "one a line, the newest first"}
	}
	return secrets, nil
}

type senderRotateCmd struct {
	nodeArgs
	SecretFile string     `help:"File with the new secret; - is stdin." required:"" placeholder:"FILE"`
	KeepOld    secondsArg `help:"How long the others work on. Default: they end at once." placeholder:"DURATION"`
	KeepAll    bool       `help:"The others do not end."`
}

func (*senderRotateCmd) Help() string {
	return `Add the new secret here first, then give it to the sender: nothing is refused meanwhile.

Example:

  echo my-secret | hookstart sender set demo --preset github --secret-file -
  echo my-next-one | hookstart sender rotate demo --secret-file - --keep-old 1d`
}

func (v *senderRotateCmd) Run(s *session) error {
	id, err := v.resolveNodeID(s)
	if err != nil {
		return err
	}
	secrets, err := s.readSecretsFile(v.SecretFile)
	if err != nil {
		return err
	}
	if len(secrets) != 1 {
		return &usageError{
			fmt.Sprintf("there are %d secrets in %s: one is needed", len(secrets), v.SecretFile),
			"hookstart sender set sets several",
		}
	}
	add := api.AddSenderSecret{Secret: secrets[0]}
	if !v.KeepAll {
		add.EndOthersAfterSeconds = &v.KeepOld.seconds
	}
	stored, err := s.client.AddSenderSecret(s.ctx, v.Workflow, id, add)
	return s.showSender(stored, v.withSenderHint(err))
}

type senderRemoveCmd struct {
	nodeArgs
	Secret string `help:"End this secret only." placeholder:"ID"`
}

func (v *senderRemoveCmd) Run(s *session) error {
	id, err := v.resolveNodeID(s)
	if err != nil {
		return err
	}
	if v.Secret != "" {
		return s.printResultLine(s.client.DeleteSenderSecret(s.ctx, v.Workflow, id, v.Secret),
			"the secret %s has ended", v.Secret)
	}
	return s.printResultLine(v.withSenderHint(s.client.DeleteSender(s.ctx, v.Workflow, id)),
		"the token alone opens %s now", id)
}

// showSender prints a sender, or returns err if it is not nil.
func (s *session) showSender(sender api.Sender, err error) error {
	if err != nil {
		return err
	}
	return s.printResponse(func() error {
		rows := [][]string{{"Sender", sender.Preset}}
		for _, name := range slices.Sorted(maps.Keys(sender.Settings)) {
			rows = append(rows, []string{"Setting", name + "=" + sender.Settings[name]})
		}
		rows = append(rows,
			[]string{"Verified", agoOr(sender.LastVerifiedAt, s.now(), "never")}, []string{
				"Handshake", agoOr(sender.LastHandshakeAt, s.now(), "never"),
			})
		if sender.LastRefusal != nil {
			rows = append(rows, []string{
				"Refused",
				fmt.Sprintf("%s: %s (%s)", ago(sender.LastRefusal.At, s.now()),
					sender.LastRefusal.Reason,
					sender.LastRefusal.Code),
			})
		}
		if sender.DeliveriesWithoutID > 0 {
			rows = append(rows, []string{
				"Without ID",
				fmt.Sprintf("%d of %d deliveries: their repeats are not recognised",
					sender.DeliveriesWithoutID, sender.Deliveries),
			})
		}
		if err := s.printRows(rows); err != nil || len(sender.Secrets) == 0 {
			return err
		}
		table := [][]string{{"SECRET", "ENDS WITH", "SET", "ENDS"}}
		for _, secret := range sender.Secrets {
			table = append(table, []string{
				secret.ID, secret.Last4, ago(secret.SetAt, s.now()),
				agoOr(secret.ExpiresAt, s.now(), "never"),
			})
		}
		if err := s.printRows(table); err != nil {
			return err
		}
		for _, secret := range sender.Secrets {
			if secret.Captured != "" {
				s.printNote("The sender has brought its secret. It is shown this once: %s",
					secret.Captured)
			}
		}
		return nil
	})
}
