package cli

import (
	"strconv"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type planVerbs struct {
	List planList `cmd:"" help:"List the plans." example:"hookstart plan list"`
}

type planList struct{}

func (*planList) Run(s *session) error {
	return printList(s, paging{All: true}, func(p apiclient.Page) (api.List[api.Plan], error) {
		return s.client.Plans(s.ctx, p)
	}, listFormat[api.Plan]{
		head: []string{
			"PLAN", "WEBHOOKS", "ACTIVE WORKFLOWS", "RATE LIMIT PER WORKFLOW", "BYTES PER DAY",
		},
		row: func(p api.Plan) []string {
			active := "any number"
			if p.MaxActiveWebhookWorkflows != nil {
				active = strconv.FormatInt(*p.MaxActiveWebhookWorkflows, 10)
			}
			bytes := "any number"
			if p.BytesPerDay != nil {
				bytes = decimalBytes(*p.BytesPerDay)
			}
			return []string{p.ID, yesNo(p.WebhookTriggers), active, rateText(&p.RateLimit), bytes}
		},
		none: "The plan catalog is empty.",
	})
}
