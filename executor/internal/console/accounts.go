package console

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

const accountRows = 25

// accountList is the data of the accounts page.
type accountList struct {
	Rows  []accountRow
	Plans []planChoice
	Older template.URL // the query of the next page; "": this is the last
	First bool
}

type accountRow struct {
	quota
	CreatedAt time.Time
}

// planChoice is a plan as forms offer it.
type planChoice struct {
	ID, Text string
}

func (c *Console) listAccounts(w http.ResponseWriter, r *http.Request) {
	after := r.URL.Query().Get("after")
	list := accountList{First: after == "", Plans: c.planChoices()}
	found := c.Directory.Accounts(after, accountRows+1)
	if len(found) > accountRows {
		found = found[:accountRows]
		list.Older = queryText(url.Values{"after": {found[accountRows-1].GetId()}})
	}
	for _, account := range found {
		list.Rows = append(list.Rows, accountRow{c.quota(account.GetId()), account.GetCreatedAt().AsTime()})
	}
	c.render(w, r, http.StatusOK, "accounts", page{Title: "Accounts", Section: "accounts", Body: list})
}

func (c *Console) planChoices() []planChoice {
	plans := c.Directory.Plans().Record.GetPlans()
	choices := make([]planChoice, 0, len(plans))
	for _, plan := range plans {
		limit := rateText(plan.GetRateLimit().GetRequests(), plan.GetRateLimit().GetWindowSeconds())
		text := plan.GetId() + ": "
		switch {
		case !plan.GetWebhookTriggers():
			text += "no webhook triggers"
		case plan.MaxActiveWebhookWorkflows == nil:
			text += "any number active, " + limit + " per workflow" + bytesText(plan)
		case plan.GetMaxActiveWebhookWorkflows() == 1:
			text += "1 active, " + limit + bytesText(plan)
		default:
			text += count(plan.GetMaxActiveWebhookWorkflows()) + " active, " + limit + " per workflow" + bytesText(plan)
		}
		choices = append(choices, planChoice{plan.GetId(), text})
	}
	return choices
}

// bytesText is a plan's limit of bytes, in the units in which people set it: powers of ten.
func bytesText(plan *hookstartv1.Plan) string {
	if plan.BytesPerDay == nil {
		return ""
	}
	n, unit := plan.GetBytesPerDay(), " bytes"
	for _, larger := range [...]string{" KB", " MB", " GB", " TB"} {
		if n < 1000 || n%1000 != 0 {
			break
		}
		n, unit = n/1000, larger
	}
	return ", " + count(n) + unit + " a day"
}

// rateText is a rate limit in words.
func rateText(requests, windowSeconds int64) string {
	text := plural(requests, "request")
	switch windowSeconds {
	case 1:
		return text + "/s"
	case 60:
		return text + "/min"
	case 3600:
		return text + "/h"
	}
	if windowSeconds < 60 {
		return fmt.Sprintf("%s per %d s", text, windowSeconds)
	}
	return text + " per " + duration(time.Duration(windowSeconds)*time.Second)
}
