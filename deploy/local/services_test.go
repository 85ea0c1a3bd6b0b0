package local

import (
	"reflect"
	"testing"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/program"
)

// meaningless maps the service flags that are useless in a process that runs both services to the
// reason.
var meaningless = map[string]string{ //nolint:gochecknoglobals // a constant list
	"Addr":            "--ingress-addr, --executor-addr",
	"AdoptDatabase":   "the database and NATS are in one data folder",
	"NATSURL":         "the server is in the process",
	"NATSCreds":       "the server is in the process",
	"NATSCA":          "the server is in the process",
	"ConnectTimeout":  "there is nothing to wait for",
	"DatabaseURL":     "SQLite, in the data folder",
	"Replicas":        "there is one server",
	"RegistryCopy":    "there is one account",
	"RunnerGroups":    "runners may create their consumers",
	"ShutdownTimeout": "each service has its own",
}

// Every flag of the services must exist here too, because otherwise it could not be set in a single
// process. Flags of the same name must have the same meaning.
func TestEveryFlagOfTheServicesIsHere(t *testing.T) {
	t.Parallel()
	var own Config
	if err := program.Parse(&own); err != nil {
		t.Fatal(err)
	}
	here := reflect.TypeFor[Config]()
	for _, service := range []reflect.Type{
		reflect.TypeFor[executor.Config](), reflect.TypeFor[ingress.Config](),
	} {
		for field := range service.Fields() {
			if field.Tag.Get("kong") == "-" || meaningless[field.Name] != "" {
				continue
			}
			same, ok := here.FieldByName(field.Name)
			switch {
			case !ok:
				t.Errorf("%s has the flag %s, and hookstart-local has not: add it to "+
					"local.Config, or to the list of this test", service, field.Name)
			case same.Type != field.Type ||
				same.Tag.Get("default") != field.Tag.Get("default") && field.Name != "OpsAddr":
				t.Errorf("%s: %s is another flag than that of hookstart-local", service, field.Name)
			}
		}
	}
}

func TestServicesHaveTheFlagsOfThisProgram(t *testing.T) {
	t.Parallel()
	var c Config
	err := program.Parse(&c, "--tls-cert=/c", "--tls-key=/k", "--executor-tls-cert=/ec",
		"--executor-tls-key=/ek", "--retention=48h", "--stream-max-age=72h",
		"--dedup-window=96h", "--delivery-id-headers=X-One", "--min-body-rate=0",
		"--max-body-bytes=300000000")
	if err != nil {
		t.Fatal(err)
	}
	e, i, err := c.serviceConfigs()
	if err != nil {
		t.Fatal(err)
	}
	if e.TLSCert != "/ec" || e.TLSKey != "/ek" || i.TLSCert != "/c" || i.TLSKey != "/k" ||
		e.Retention != c.Retention || e.StreamMaxAge != c.DedupWindow ||
		e.DedupWindow != c.DedupWindow || len(i.DeliveryIDHeaders) != 1 || i.MinBodyRate != 0 ||
		i.MaxBufferedBytes != i.MaxBodyBytes || e.DefaultPlan != "ultra" {
		t.Errorf("%+v\n%+v", e, i)
	}
	c.ExecutorTLSKey = ""
	if _, _, err := c.serviceConfigs(); err == nil {
		t.Error("a certificate without a key")
	}
	c = Config{Plans: "/plans.json"}
	if e, _, err := c.serviceConfigs(); err != nil || e.DefaultPlan != "" {
		t.Errorf("%q, %v: a catalog of one's own need not have our plan", e.DefaultPlan, err)
	}
}
