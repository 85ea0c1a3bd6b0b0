package executor

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
)

// readPlans reads the plan catalog from a file, or returns the built-in catalog if path is "". It
// returns an error if defaultPlan is set but not in the catalog.
func readPlans(path, defaultPlan string) (registry.Plans, error) {
	catalog := edit.DefaultPlansJSON
	if path != "" {
		var err error
		if catalog, err = os.ReadFile(path); err != nil { //nolint:gosec // the operator's own file
			return nil, fmt.Errorf("--plans: %w", err)
		}
	}
	plans, err := edit.ParsePlans(catalog)
	if err != nil || defaultPlan == "" {
		return plans, err
	}
	if plans.Find(defaultPlan) == nil {
		return nil, fmt.Errorf("--default-plan: there is no plan %q in the catalog", defaultPlan)
	}
	return plans, nil
}

// putPlansTimeout is the maximum duration of one attempt to store the plan catalog.
const putPlansTimeout = 5 * time.Second

// putPlansWithRetry stores the catalog. It retries until ctx is done, because NATS may be
// unavailable temporarily.
func putPlansWithRetry(ctx context.Context, editor *edit.Editor, plans registry.Plans) (err error) {
	retry.Until(ctx, 250*time.Millisecond, func() bool {
		trying, cancel := context.WithTimeout(ctx, putPlansTimeout)
		defer cancel()
		err = editor.PutPlans(trying, plans)
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("the plan catalog: %w", err)
	}
	return nil
}

// warnOfMissingPlans logs a warning with the number of accounts whose plan is not in the catalog.
// Without it, an operator would not notice that a plan was omitted by mistake.
func warnOfMissingPlans(index *edit.RegistryIndex, plans registry.Plans, log logrus.FieldLogger) {
	lost := map[string]int{}
	for _, account := range index.Accounts("", math.MaxInt) {
		if plans.Find(account.Plan) == nil {
			lost[account.Plan]++
		}
	}
	if len(lost) > 0 {
		log.WithField("accounts",
			lost).Warn("accounts have plans that are not in the catalog, so their webhooks are " +
			"refused; put the plans back into it, or give the accounts other ones")
	}
}
