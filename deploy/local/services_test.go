package local

import (
	"reflect"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/service"
)

// meaningless lists the service flags that make no sense in a process that runs both services,
// keyed by field name. Each value is the reason, or what replaces the flag.
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

// parsed returns a program's configuration with the default values of its flags.
func parsed[C any](t *testing.T) C {
	t.Helper()
	var c C
	if err := program.Parse(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// flags returns the fields of a configuration that are flags, keyed by field name.
func flags(config any) map[string]reflect.Value {
	value := reflect.ValueOf(config).Elem()
	found := map[string]reflect.Value{}
	for _, field := range reflect.VisibleFields(value.Type()) {
		if field.Tag.Get("help") != "" {
			found[field.Name] = value.FieldByIndex(field.Index)
		}
	}
	return found
}

// Every flag of the executor and the ingress, except for the flags in meaningless, also exists in
// hookstart-local, with the same type and (except for OpsAddr) the same default value. If a flag
// were missing, users of hookstart-local could not set it.
func TestEveryFlagOfTheServicesIsHere(t *testing.T) {
	t.Parallel()
	own, e, i := parsed[Config](t), parsed[executor.Config](t), parsed[ingress.Config](t)
	here := flags(&own)
	for service, theirs := range map[string]map[string]reflect.Value{
		"executor": flags(&e), "ingress": flags(&i),
	} {
		if len(theirs) < 15 {
			t.Errorf("%s: %d flags found", service, len(theirs))
		}
		for name, value := range theirs {
			if meaningless[name] != "" {
				continue
			}
			same, ok := here[name]
			switch {
			case !ok:
				t.Errorf("%s has the flag %s, and hookstart-local has not: add it to "+
					"local.Config, or to the list of this test", service, name)
			case same.Type() != value.Type() ||
				!reflect.DeepEqual(same.Interface(), value.Interface()) && name != "OpsAddr":
				t.Errorf("%s: %s is another flag than that of hookstart-local", service, name)
			}
		}
	}
}

// The value of a flag that hookstart-local shares with a service is passed on to the service.
func TestServicesGetTheFlagsOfTheSameName(t *testing.T) {
	t.Parallel()
	own := parsed[Config](t)
	here := flags(&own)
	// Give each flag a greater value than the flag before it. The configuration is valid only if
	// the stream age is at least the deduplication window, and the memory for bodies at least the
	// maximum length of one body. The order of the fields makes sure of both.
	number := int64(1_000_000_000)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		value, ok := here[field.Name]
		if !ok {
			continue
		}
		number++
		switch flag := value.Addr().Interface().(type) {
		case *string:
			*flag = field.Name
		case *int64:
			*flag = number
		case *time.Duration:
			*flag = time.Duration(number)
		case *bool:
			*flag = true
		case *[]string:
			*flag = []string{field.Name}
		default:
			t.Fatalf("%s: a flag of the type %s", field.Name, value.Type())
		}
	}
	own.ExecutorTLS = service.TLSFlags{TLSCert: "of the executor", TLSKey: "its key"}
	e, i, err := own.serviceConfigs()
	if err != nil {
		t.Fatal(err)
	}
	if e.TLSFlags != own.ExecutorTLS {
		t.Errorf("the executor's certificate is %v, want %v", e.TLSFlags, own.ExecutorTLS)
	}
	for which, theirs := range map[string]map[string]reflect.Value{
		"executor": flags(&e), "ingress": flags(&i),
	} {
		passed := 0
		for name, value := range theirs {
			if isTLS := name == "TLSCert" || name == "TLSKey"; isTLS && which == "executor" {
				continue // compared above
			}
			want, ok := here[name]
			if !ok {
				continue
			}
			passed++
			if !reflect.DeepEqual(value.Interface(), want.Interface()) {
				t.Errorf("%s: %s is %v, want %v", which, name, value, want)
			}
		}
		if passed < 10 {
			t.Errorf("%s: %d flags passed on", which, passed)
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
	c.ExecutorTLS.TLSKey = ""
	if _, _, err := c.serviceConfigs(); err == nil {
		t.Error("a certificate without a key")
	}
	c = Config{PlanFlags: executor.PlanFlags{Plans: "/plans.json"}}
	if e, _, err := c.serviceConfigs(); err != nil || e.DefaultPlan != "" {
		t.Errorf("%q, %v: a catalog of one's own need not have our plan", e.DefaultPlan, err)
	}
}
