package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/humantext"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// accountList is the template data of the accounts page.
type accountList struct {
	pager
	Rows  []accountRow
	Plans []planChoice
	New   formView // form that creates an account
	// PlanChange and ToDelete hold the data of the page's two confirmation dialogs. The page shows
	// a dialog if its data is not nil. At least one of them is nil.
	PlanChange *planChange
	ToDelete   *accountToDelete
}

// planChoice is a plan that can be selected in a form.
type planChoice struct {
	ID, Text string
	Selected bool // selected by default in the form for a new account
}

func (c *Console) accountList(r *http.Request) (list accountList, err error) {
	ctx := r.Context()
	if list.Plans, err = c.planChoices(ctx); err != nil {
		return list, err
	}
	found, at, err := fetchList(r, url.Values{}, nil,
		func(p operate.PageOptions) (api.List[api.Account], error) {
			return c.Operate.Accounts(ctx, signin.Caller(ctx), "", p)
		})
	if err != nil {
		return list, err
	}
	list.pager = at
	for _, account := range found {
		row, err := c.accountRow(ctx, account)
		if err != nil {
			return list, err
		}
		list.Rows = append(list.Rows, row)
	}
	selected := ""
	for _, plan := range list.Plans {
		if plan.Selected {
			selected = plan.ID
		}
	}
	list.New = newFormView(ctx, "new-account", map[string]string{"plan": selected})
	list.PlanChange = confirmDialogData[planChange](ctx)
	list.ToDelete = confirmDialogData[accountToDelete](ctx)
	return list, nil
}

// maxPlans is the maximum number of plans that a form offers.
const maxPlans = 1000

func (c *Console) planChoices(ctx context.Context) ([]planChoice, error) {
	plans, err := c.Operate.Plans(ctx, signin.Caller(ctx), "", operate.PageOptions{Limit: maxPlans})
	choices := make([]planChoice, 0, len(plans.Items))
	for _, plan := range plans.Items {
		limit := rateLimitText(plan.RateLimit)
		text := plan.ID + ": "
		switch most := plan.MaxActiveWebhookWorkflows; {
		case !plan.WebhookTriggers:
			text += "no webhook triggers"
		case most == nil:
			text += "any number active, " + limit + " per workflow" + byteLimitText(plan)
		case *most == 1:
			text += "1 active, " + limit + byteLimitText(plan)
		default:
			text += formatCount(*most) + " active, " + limit + " per workflow" + byteLimitText(plan)
		}
		choices = append(choices, planChoice{ID: plan.ID, Text: text, Selected: plan.Default})
	}
	if !slices.ContainsFunc(choices, func(c planChoice) bool { return c.Selected }) {
		for i := range choices {
			choices[i].Selected = choices[i].ID == "free"
		}
	}
	return choices, err
}

// byteLimitText returns the text about the daily byte limit that ends the description of a plan,
// such as ", 5 GB a day". It returns "" if the plan has no such limit.
func byteLimitText(plan api.Plan) string {
	if plan.BytesPerDay == nil {
		return ""
	}
	return ", " + formatDecimalBytes(*plan.BytesPerDay) + " a day"
}

// rateLimitText describes a rate limit in words, such as "5 requests per 10 s".
func rateLimitText(limit api.RateLimit) string {
	text := plural(limit.Requests, "request")
	if per, ok := humantext.RateSuffix(limit.WindowSeconds); ok {
		return text + per
	}
	if limit.WindowSeconds < 60 {
		return fmt.Sprintf("%s per %d s", text, limit.WindowSeconds)
	}
	return text + " per " + formatDuration(time.Duration(limit.WindowSeconds)*time.Second)
}
