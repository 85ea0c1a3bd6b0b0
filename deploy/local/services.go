package local

import (
	"cmp"
	"errors"
	"reflect"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/tlsfiles"
)

// largestPlan is the default plan if no plan catalog is configured. Customers with different plans
// seldom share an installation on one machine.
const largestPlan = "ultra"

// serviceConfigs returns the configurations of the two services. A flag of this program sets the
// service flags of the same name; all other service flags keep their defaults.
func (c *Config) serviceConfigs() (
	forExecutor executor.Config, forIngress ingress.Config, err error,
) {
	if err := errors.Join(program.Parse(&forExecutor), program.Parse(&forIngress)); err != nil {
		return forExecutor, forIngress, err
	}
	if err := tlsfiles.CheckFlags(c.ExecutorTLSCert, c.ExecutorTLSKey); err != nil {
		return forExecutor, forIngress,
			errors.New("--executor-tls-cert and --executor-tls-key go together")
	}
	copyFlags(reflect.ValueOf(&forExecutor).Elem(), reflect.ValueOf(*c))
	copyFlags(reflect.ValueOf(&forIngress).Elem(), reflect.ValueOf(*c))
	forExecutor.TLSCert, forExecutor.TLSKey = c.ExecutorTLSCert, c.ExecutorTLSKey
	forExecutor.AdoptDatabase = true // both are in one data folder
	forExecutor.StreamMaxAge = max(c.StreamMaxAge, c.DedupWindow)
	if c.Plans == "" {
		forExecutor.DefaultPlan = cmp.Or(c.DefaultPlan, largestPlan)
	}
	forIngress.MaxBufferedBytes = max(c.MaxBufferedBytes, c.MaxBodyBytes)
	return forExecutor, forIngress, nil
}

// copyFlags sets every flag of a service for which here has a field of the same name and type.
func copyFlags(service, here reflect.Value) {
	for i := range service.NumField() {
		field := service.Type().Field(i)
		if field.Tag.Get("kong") == "-" {
			continue
		}
		if own := here.FieldByName(field.Name); own.IsValid() && own.Type() == field.Type {
			service.Field(i).Set(own)
		}
	}
}
