package console

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// rotateTokenForm returns the form that gives a trigger node a new token.
func (c *Console) rotateTokenForm() *form {
	return &form{
		name:      "rotate",
		operation: "RotateToken",
		apiTermReplacer: strings.NewReplacer("rotate with keepOldForSeconds 0 to end them all",
			"choose “ends at once”, which ends them all"),
		pageURL:  workflowPageURL,
		showPage: c.showWorkflow,
		save: func(r *http.Request, p *postedForm) (string, error) {
			grace, err := strconv.ParseInt(p.values["grace"], 10, 32)
			if err != nil || grace < 0 {
				return "", incompleteFormError()
			}
			_, err = c.Operate.RotateToken(r.Context(), signin.Caller(r.Context()),
				r.PathValue("id"), r.URL.Query().Get("node"), time.Duration(grace)*time.Second)
			if grace == 0 {
				return "There is a new URL. The old one ended at once.", err
			}
			return "There is a new URL. The old one works for " + graceText(grace) + " more.", err
		},
	}
}

// gracePeriodChoices are the choices for how long the old token stays valid after a rotation.
var gracePeriodChoices = []durationChoice{
	{"0", "ends at once"},
	{"3600", "works for 1 hour more"},
	{"86400", "works for 1 day more"},
	{"604800", "works for 7 days more"},
}

// graceText returns a grace period in days if it is a whole number of days, or else in hours.
func graceText(seconds int64) string {
	if seconds%86400 == 0 {
		return plural(seconds/86400, "day")
	}
	return plural(seconds/3600, "hour")
}
