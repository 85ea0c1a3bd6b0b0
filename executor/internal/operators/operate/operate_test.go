package operate_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

// Every method of Service rejects a call without a caller, or with a caller whose role is too low,
// before it reads anything.
func TestEveryCallNeedsACaller(t *testing.T) {
	least := map[string]operate.Role{}
	for _, o := range operate.Operations() {
		least[o.Name] = o.MinRole
	}
	calls := reflect.ValueOf(operate.New(operate.Config{}))
	for i := range calls.NumMethod() {
		name, method := calls.Type().Method(i).Name, calls.Method(i)
		if method.Type().NumIn() < 2 || method.Type().In(1) != reflect.TypeFor[operate.Caller]() {
			t.Errorf("%s: its second argument is no Caller", name)
			continue
		}
		if name == "AuditSignIn" {
			continue // it rejects no caller, because it also records refused sign-ins
		}
		role, listed := least[name]
		delete(least, name)
		if !listed {
			t.Errorf("%s: the table operations does not say which role it needs", name)
		}
		for _, c := range []struct {
			caller operate.Caller
			want   string
		}{
			{operate.Caller{}, api.CodeUnauthorized},
			{operate.Caller{Kind: "stranger", Role: operate.RoleAdmin}, api.CodeUnauthorized},
			{operate.Caller{Kind: operate.CallerKindUser, Role: "owner"}, api.CodeUnauthorized},
			{operate.Caller{Kind: operate.CallerKindUser}, api.CodeUnauthorized},
			// The Service in this test has no keyring, so it rejects every caller with a key. The
			// error is "forbidden" if the caller's role is too low, and otherwise "unauthorized".
			{
				operate.Caller{Kind: operate.CallerKindKey, Role: operate.RoleViewer},
				refusedKey(operate.RoleViewer.Includes(role)),
			},
			{
				operate.Caller{Kind: operate.CallerKindUser, Role: operate.RoleViewer},
				forbiddenUnless(operate.RoleViewer.Includes(role)),
			},
			{
				operate.Caller{
					Kind: operate.CallerKindUser, Role: operate.RoleViewer,
					AccountID: "acme",
				},
				forbiddenUnless(operate.RoleViewer.Includes(role)),
			},
			{
				operate.Caller{Kind: operate.CallerKindUser, Role: operate.RoleEditor},
				forbiddenUnless(operate.RoleEditor.Includes(role)),
			},
			{operate.Caller{Kind: operate.CallerKindUser, Role: operate.RoleAdmin}, ""},
		} {
			got := outcomeOf(t.Context(), method, c.caller)
			switch isRefused := got.code == api.CodeUnauthorized ||
				got.code == api.CodeForbidden && c.caller.AccountID == ""; {
			case got.failure != "":
				t.Errorf("%s for %+v: %s", name, c.caller, got.failure)
			case c.want != "" && got.code != c.want, c.want == "" && isRefused:
				t.Errorf("%s for %+v: %q, want %q", name, c.caller, got.code, c.want)
			}
		}
	}
	for name := range least {
		t.Errorf("the table operations has %s, which is no operation", name)
	}
}

func forbiddenUnless(allowed bool) string {
	if allowed {
		return ""
	}
	return api.CodeForbidden
}

func refusedKey(allowed bool) string {
	if allowed {
		return api.CodeUnauthorized
	}
	return api.CodeForbidden
}

// outcome describes how a call ended: with an error code, a panic, or neither.
type outcome struct {
	code string // code of the error that rejected the call; "" if it was not rejected
	// failure describes an unexpected panic. It is "" if the call did not panic, or if its panic is
	// the expected one: the call has checked the caller, and then dereferences a nil dependency.
	failure string
}

// outcomeOf makes a call in which every argument except the caller and the page is zero. There are
// no dependencies, so a call that is allowed panics when it dereferences nil.
func outcomeOf(ctx context.Context, method reflect.Value, caller operate.Caller) (o outcome) {
	defer func() {
		p := recover()
		err, _ := p.(runtime.Error)
		switch {
		case p == nil:
		case err == nil || !strings.Contains(err.Error(), "nil pointer"):
			o.failure = fmt.Sprintf("panics: %v", p)
		case !isChecking():
			o.failure = fmt.Sprintf("panics before it has checked the caller: %v", p)
		}
	}()
	in := []reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(caller)}
	for n := 2; n < method.Type().NumIn(); n++ {
		if argument := method.Type().In(n); argument == reflect.TypeFor[operate.PageOptions]() {
			in = append(in, reflect.ValueOf(operate.PageOptions{Limit: 1}))
		} else {
			in = append(in, reflect.Zero(argument))
		}
	}
	out := method.Call(in)
	err, _ := reflect.TypeAssert[error](out[len(out)-1])
	if refused, ok := errors.AsType[*operate.Error](err); ok {
		o.code = refused.Code
	}
	return o
}

// isChecking reports whether checkAndCall is on the stack of the current panic. If so, the role was
// checked before the panic, because checkAndCall does that first. isChecking must be called by a
// deferred function, while the stack of the panic still exists.
func isChecking() bool {
	callers := make([]uintptr, 100)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "operate.checkAndCall") {
			return true
		}
		if !more {
			return false
		}
	}
}

// The API's types list the roles in their struct tags, which cannot be derived from this package's
// list of roles. The test checks that both lists are the same.
func TestRolesOfTheAPI(t *testing.T) {
	var names []string
	for _, role := range operate.Roles() {
		names = append(names, string(role))
	}
	want := strings.Join(names, ",")
	for _, in := range []reflect.Type{
		reflect.TypeFor[api.PutKey](), reflect.TypeFor[api.Key](), reflect.TypeFor[api.WhoAmI](),
	} {
		field, found := in.FieldByName("Role")
		if got := field.Tag.Get("enum"); !found || got != want {
			t.Errorf("the roles of %s: %q, want %q", in, got, want)
		}
	}
}

func TestRoles(t *testing.T) {
	for _, c := range []struct {
		role, other operate.Role
		want        bool
	}{
		{operate.RoleViewer, operate.RoleViewer, true},
		{operate.RoleViewer, operate.RoleEditor, false},
		{operate.RoleEditor, operate.RoleViewer, true},
		{operate.RoleAdmin, operate.RoleEditor, true},
		{operate.RoleEditor, operate.RoleAdmin, false},
		{operate.RoleAdmin, "owner", false},
		{"owner", operate.RoleViewer, false},
		{"", operate.RoleViewer, false},
		{"", "", false},
		{operate.RoleAdmin, "", false},
	} {
		if got := c.role.Includes(c.other); got != c.want {
			t.Errorf("%q includes %q: %v", c.role, c.other, got)
		}
	}
}

func TestLoopback(t *testing.T) {
	for base, want := range map[string]string{
		"http://127.0.0.1:8080":              "http://127.0.0.1:8080",
		"http://localhost/webhooks/x?token=": "http://localhost",
		"http://[::1]:1":                     "http://[::1]:1",
		"http://0.0.0.0:8080":                "http://0.0.0.0:8080",
		"https://hooks.localhost":            "https://hooks.localhost",
		"https://hooks.example.com":          "",
		"http://192.168.1.2:8080":            "",
		"":                                   "",
		"http://%":                           "",
	} {
		if got := operate.LoopbackOrigin(base); got != want {
			t.Errorf("loopback(%q) = %q, want %q", base, got, want)
		}
	}
}
