package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type auditCmds struct {
	List   auditListCmd   `cmd:"" help:"List the changes, the newest first." detail:"Needs the admin token, or a key with the role admin." example:"hookstart audit list --since 7d"`
	Export auditExportCmd `cmd:"" help:"Print all changes as JSON lines." detail:"One JSON text a line, the newest first, as the API has it." example:"hookstart audit export --since 30d"`
}

// auditFilter holds the flags that select audit entries.
type auditFilter struct {
	Actor    string  `help:"Only of this actor: an ID, a name, or a kind (admin-token, key, user)." placeholder:"ACTOR"`
	Account  string  `help:"Only about this account." type:"id" placeholder:"ACCOUNT"`
	Workflow string  `help:"Only about this workflow." type:"id" placeholder:"WORKFLOW"`
	Since    timeArg `help:"Only since then: a time, or how long ago, like 90m or 7d." placeholder:"WHEN"`
	Until    timeArg `help:"Only before." placeholder:"WHEN"`
}

func (f auditFilter) apiFilter() apiclient.AuditFilter {
	return apiclient.AuditFilter{
		Actor:      f.Actor,
		AccountID:  f.Account,
		WorkflowID: f.Workflow,
		Since:      f.Since.Time,
		Until:      f.Until.Time,
	}
}

type auditListCmd struct {
	auditFilter
	paging
}

func (v *auditListCmd) Run(s *session) error {
	return printList(s, v.paging, func(p apiclient.Page) (api.List[api.AuditEntry], error) {
		return s.client.Audit(s.ctx, v.apiFilter(), p)
	}, listFormat[api.AuditEntry]{
		header: []string{"WHEN", "WHO", "ACTION", "ABOUT", "CHANGES"},
		formatRow: func(e api.AuditEntry) []string {
			about := cmp.Or(e.WorkflowID, e.AccountID, "-")
			if e.NodeID != "" {
				about += "/" + e.NodeID
			}
			return []string{
				ago(e.At, s.now()), actorText(e.Actor), e.Action, about,
				truncateForDisplay(changesText(e.Changes), 60),
			}
		},
		emptyListHint: "No changes.",
	})
}

// actorText returns the actor's name, or the ID if it has no name, or the kind if it has neither.
// For users and keys it adds the kind, because actors of different kinds may have the same name.
func actorText(a api.Actor) string {
	name := truncateForDisplay(cmp.Or(a.Name, a.ID, a.Kind), 30)
	switch a.Kind {
	case api.CallerUser, api.CallerKey:
		return name + " (" + a.Kind + ")"
	default:
		return name
	}
}

// changesText returns the changes on one line, such as "name: A -> B, queue: default removed".
func changesText(changes []api.AuditChange) string {
	all := make([]string, len(changes))
	for i, c := range changes {
		switch {
		case c.From == nil:
			all[i] = fmt.Sprintf("%s: %v", c.Field, c.To)
		case c.To == nil:
			all[i] = fmt.Sprintf("%s: %v removed", c.Field, c.From)
		default:
			all[i] = fmt.Sprintf("%s: %v -> %v", c.Field, c.From, c.To)
		}
	}
	return strings.Join(all, ", ")
}

type auditExportCmd struct{ auditFilter }

func (v *auditExportCmd) Run(s *session) error {
	page := apiclient.Page{Limit: api.MaxLimit}
	for {
		part, err := s.client.Audit(s.ctx, v.apiFilter(), page)
		if err != nil {
			return err
		}
		items, err := s.rawResponseItems()
		if err != nil {
			return err
		}
		var lines bytes.Buffer
		for _, item := range items {
			lines.Write(append(bytes.TrimSpace(item), '\n'))
		}
		if err := s.printRaw(lines.Bytes()); err != nil {
			return err
		}
		if page.Cursor = part.NextCursor; page.Cursor == "" {
			return nil
		}
	}
}
