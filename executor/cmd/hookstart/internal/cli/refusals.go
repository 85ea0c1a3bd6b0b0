package cli

import (
	"strconv"

	"github.com/hookstart/hookstart/executor/api"
)

type workflowRefusals struct {
	Workflow string `arg:"" type:"id" help:"The workflow's ID."`
	Since    moment `help:"Refused then or later: like 2026-01-31T15:04:05Z, or like 1h or '2d ago'. Default: 24h; a week is kept." placeholder:"TIME"`
}

func (*workflowRefusals) Help() string {
	return `Senders see the same codes in the answers that they got.

Example:

  hookstart workflow refusals demo --since 1h`
}

// Run implements the verb.
func (v *workflowRefusals) Run(s *session) error {
	found, err := s.client.Refusals(s.ctx, v.Workflow, v.Since.Time)
	if err != nil {
		return err
	}
	return s.print(func() error {
		if len(found.Items) == 0 {
			s.note("No refused requests to %s are counted. Counts arrive within a few seconds.", v.Workflow)
			return nil
		}
		table := [][]string{{"REFUSED", "CODE", "LAST", "BODY", "USER AGENT"}}
		for _, r := range found.Items {
			table = append(table, []string{strconv.FormatInt(r.Count, 10), r.Code, ago(r.Last.At, s.now()), bodyOf(r.Last), short(r.Last.UserAgent, 40)})
		}
		return s.rows(table)
	})
}

// bodyOf is the length of a refused request's body, as it declared it.
func bodyOf(r api.RefusedRequest) string {
	if r.BodyBytes == nil {
		return "–"
	}
	return strconv.FormatInt(*r.BodyBytes, 10) + " B"
}
