package operate_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
)

// Every call names its caller, and is refused without one before anything is read.
func TestEveryCallNeedsACaller(t *testing.T) {
	calls := reflect.ValueOf(operate.New(operate.Config{})) // which would panic if it was used
	caller := reflect.TypeFor[operate.Caller]()
	for i := range calls.NumMethod() {
		name, method := calls.Type().Method(i).Name, calls.Method(i)
		if name == "Explain" || name == "databaseError" {
			continue
		}
		if method.Type().NumIn() < 2 || method.Type().In(1) != caller {
			t.Errorf("%s: its second argument is no Caller", name)
			continue
		}
		in := []reflect.Value{reflect.ValueOf(t.Context())}
		for n := 1; n < method.Type().NumIn(); n++ {
			in = append(in, reflect.Zero(method.Type().In(n)))
		}
		out := method.Call(in)
		err, _ := reflect.TypeAssert[error](out[len(out)-1])
		if refused, is := errors.AsType[*operate.Error](err); !is || refused.Code != api.CodeUnauthorized {
			t.Errorf("%s without a caller: %v", name, err)
		}
	}
}

func TestLoopback(t *testing.T) {
	for base, want := range map[string]string{
		"http://127.0.0.1:8080": "http://127.0.0.1:8080", "http://localhost/webhooks/x?token=": "http://localhost", "http://[::1]:1": "http://[::1]:1",
		"http://0.0.0.0:8080": "http://0.0.0.0:8080", "https://hooks.localhost": "https://hooks.localhost",
		"https://hooks.example.com": "", "http://192.168.1.2:8080": "", "": "", "http://%": "",
	} {
		if got := operate.Loopback(base); got != want {
			t.Errorf("loopback(%q) = %q, want %q", base, got, want)
		}
	}
}
