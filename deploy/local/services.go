package local

import (
	"cmp"
	"errors"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/tlsfiles"
)

// defaultPlan is the default plan if no plan catalog is configured: the built-in plan with the
// highest limits, because customers with different plans seldom share an installation on one
// machine.
const defaultPlan = "ultra"

// serviceConfigs returns the configurations of the executor and the ingress. Flags that
// hookstart-local shares with a service have the values in c. All other flags have their defaults.
func (c *Config) serviceConfigs() (
	forExecutor executor.Config, forIngress ingress.Config, err error,
) {
	if err := errors.Join(program.Parse(&forExecutor), program.Parse(&forIngress)); err != nil {
		return forExecutor, forIngress, err
	}
	if err := tlsfiles.CheckFlags(c.ExecutorTLS.TLSCert, c.ExecutorTLS.TLSKey); err != nil {
		return forExecutor, forIngress,
			errors.New("--executor-tls-cert and --executor-tls-key go together")
	}
	forExecutor.OpsFlags, forIngress.OpsFlags = c.OpsFlags, c.OpsFlags
	forExecutor.LogFlags, forIngress.LogFlags = c.LogFlags, c.LogFlags
	forExecutor.TLSFlags, forIngress.TLSFlags = c.ExecutorTLS, c.TLSFlags
	forExecutor.PublicURL, forIngress.PublicURL = c.PublicURL, c.PublicURL
	forExecutor.SecretsKeyFile, forIngress.SecretsKeyFile = c.SecretsKeyFile, c.SecretsKeyFile

	forExecutor.AdminToken, forExecutor.SignInFlags = c.AdminToken, c.SignInFlags
	forExecutor.StreamFlags, forExecutor.DedupFlags = c.StreamFlags, c.DedupFlags
	forExecutor.PlanFlags, forExecutor.RetentionFlags = c.PlanFlags, c.RetentionFlags
	forExecutor.AdoptDatabase = true // database and streams are in one data folder
	forExecutor.StreamMaxAge = max(c.StreamMaxAge, c.DedupWindow)
	if c.Plans == "" {
		forExecutor.DefaultPlan = cmp.Or(c.DefaultPlan, defaultPlan)
	}

	forIngress.RequestFlags, forIngress.ReadFlags = c.RequestFlags, c.ReadFlags
	forIngress.WaitFlags, forIngress.PublishFlags = c.WaitFlags, c.PublishFlags
	forIngress.MaxBufferedBytes = max(c.MaxBufferedBytes, c.MaxBodyBytes)
	return forExecutor, forIngress, nil
}
