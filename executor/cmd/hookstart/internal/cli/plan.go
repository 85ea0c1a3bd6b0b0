package cli

import (
	"strconv"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type planCmds struct {
	List planListCmd `cmd:"" help:"List the plans." example:"hookstart plan list"`
}

type planListCmd struct{}

func (*planListCmd) Run(s *session) error {
	return printList(s, paging{All: true}, func(p apiclient.Page) (api.List[api.Plan], error) {
		return s.client.Plans(s.ctx, p)
	}, listFormat[api.Plan]{
		header: []string{
			"PLAN", "WEBHOOKS", "ACTIVE WORKFLOWS", "RATE LIMIT PER WORKFLOW", "BYTES PER DAY",
		},
		formatRow: func(p api.Plan) []string {
			active := "any number"
			if p.MaxActiveWebhookWorkflows != nil {
				active = strconv.FormatInt(*p.MaxActiveWebhookWorkflows, 10)
			}
			bytes := "any number"
			if p.BytesPerDay != nil {
				bytes = decimalBytes(*p.BytesPerDay)
			}
			return []string{
				p.ID, yesNo(p.WebhookTriggers), active, rateLimitText(&p.RateLimit),
				bytes,
			}
		},
		emptyListHint: "The plan catalog is empty.",
	})
}
