package cli

import (
	"cmp"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type keyCmds struct {
	Create keyCreateCmd `cmd:"" help:"Make a key; it is shown once."`
	List   keyListCmd   `cmd:"" help:"List the keys." example:"hookstart key list"`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke a key, from the very next request on." example:"hookstart key revoke key_q2VnT0pXbWs"`
}

type keyCreateCmd struct {
	Name      string     `arg:"" help:"For people: who has it, and what for."`
	Role      string     `help:"viewer reads, without tokens; editor also changes workflows, runs again and retries; admin also changes accounts and keys." enum:"viewer,editor,admin" required:""`
	Account   string     `help:"The only account that it has access to; not with the role admin. Default: all of them." type:"id" placeholder:"ACCOUNT"`
	ExpiresIn secondsArg `help:"When it stops to work, like 1h or 90d. Default: never." placeholder:"DURATION"`
}

func (*keyCreateCmd) Help() string {
	return `The key is the only line on stdout, so that a script can keep it; what it is
goes to stderr. With -o json, stdout is the API's answer.

Examples:

  hookstart key create CI --role editor --account demo --expires-in 90d
  export HOOKSTART_ADMIN_TOKEN="$(hookstart key create me --role viewer)"`
}

func (v *keyCreateCmd) Run(s *session) error {
	put := api.PutKey{Name: v.Name, Role: v.Role, AccountID: v.Account}
	if v.ExpiresIn.seconds > 0 {
		lifetime := time.Duration(v.ExpiresIn.seconds) * time.Second
		put.ExpiresAt = s.now().Add(lifetime).UTC().Truncate(time.Second)
	}
	made, err := s.client.CreateKey(s.ctx, put)
	if err != nil {
		return err
	}
	return s.printResponse(func() error {
		ends := "It does not end."
		if !made.ExpiresAt.IsZero() {
			ends = "It ends " + ago(made.ExpiresAt, s.now()) + "."
		}
		s.printNote("%s: %s of %s. %s Keep it now: it is not shown again. hookstart key revoke %s "+
			"ends it.",
			made.ID, made.Role, cmp.Or(made.AccountID, "all accounts"), ends, made.ID)
		return s.printRaw([]byte(made.Secret + "\n"))
	})
}

type keyListCmd struct {
	Account string `help:"Only keys for this account." type:"id" placeholder:"ACCOUNT"`
	paging
}

func (v *keyListCmd) Run(s *session) error {
	get := func(p apiclient.Page) (api.List[api.Key], error) {
		return s.client.Keys(s.ctx, v.Account, p)
	}
	return printList(s, v.paging, get, listFormat[api.Key]{
		header: []string{"KEY", "ROLE", "ACCOUNT", "CREATED", "LAST USED", "ENDS", "NAME"},
		formatRow: func(k api.Key) []string {
			return []string{
				k.ID, k.Role, cmp.Or(k.AccountID, "all"), ago(k.CreatedAt, s.now()),
				agoOr(k.LastUsedAt, s.now(), "never"), agoOr(k.ExpiresAt, s.now(), "never"),
				truncateForDisplay(k.Name, 30),
			}
		},
		emptyListHint: "No keys. Make one: hookstart key create NAME --role viewer",
	})
}

type keyRevokeCmd struct {
	Key string `arg:"" help:"The key's ID, not the key: hookstart key list shows it."`
}

func (v *keyRevokeCmd) Run(s *session) error {
	if err := s.client.RevokeKey(s.ctx, v.Key); err != nil {
		return err
	}
	s.printNote("Revoked. No executor takes it any more.")
	return nil
}

type whoamiCmd struct{}

func (*whoamiCmd) Run(s *session) error {
	me, err := s.client.WhoAmI(s.ctx)
	if err != nil {
		return err
	}
	return s.printResponse(func() error {
		return s.printRows([][]string{
			{"Kind", me.Kind},
			{"ID", cmp.Or(me.ID, "–")},
			{"Name", me.Name},
			{"Role", me.Role},
			{"Account", cmp.Or(me.AccountID, "all of them")},
		})
	})
}
