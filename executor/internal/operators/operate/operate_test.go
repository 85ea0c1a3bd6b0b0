package operate_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

// mayCall is the role required for each call. A new call needs a rule and an entry here.
var mayCall = map[string]operate.Role{
	"Account":         operate.Viewer,
	"Accounts":        operate.Viewer,
	"Activity":        operate.Viewer,
	"AllRefusals":     operate.Viewer,
	"Changed":         operate.Viewer,
	"CheckPublicURL":  operate.Viewer,
	"DeadLetters":     operate.Viewer,
	"Execution":       operate.Viewer,
	"Events":          operate.Viewer,
	"ExecutionDetail": operate.Viewer,
	"Executions":      operate.Viewer,
	"Installation":    operate.Viewer,
	"Origin":          operate.Viewer,
	"Plans":           operate.Viewer,
	"Quota":           operate.Viewer,
	"Refusals":        operate.Viewer,
	"Requests":        operate.Viewer,
	"Trigger":         operate.Viewer,
	"Sender":          operate.Viewer,
	"SenderPresets":   operate.Viewer,
	"LastRecognized":  operate.Viewer,
	"Watch":           operate.Viewer,
	"WhoAmI":          operate.Viewer,
	"Workflow":        operate.Viewer,
	"Workflows":       operate.Viewer,

	"AddSenderSecret":    operate.Editor,
	"PutSender":          operate.Editor,
	"RemoveSender":       operate.Editor,
	"RemoveSenderSecret": operate.Editor,
	"Activate":           operate.Editor,
	"Deactivate":         operate.Editor,
	"DeleteWorkflow":     operate.Editor,
	"PutWorkflow":        operate.Editor,
	"PatchWorkflow":      operate.Editor,
	"PatchTrigger":       operate.Editor,
	"TryFilter":          operate.Editor,
	"TryOrderKey":        operate.Viewer,
	"PatchAccount":       operate.Admin,
	"RequeueExecution":   operate.Editor,
	"RerunExecution":     operate.Editor,
	"RerunTrigger":       operate.Editor,
	"RotateToken":        operate.Editor,
	"SetSamplePayload":   operate.Editor,
	"SendTest":           operate.Editor,
	"Queues":             operate.Viewer,
	"UnattendedQueues":   operate.Viewer,
	"ReplayExecution":    operate.Editor,
	"ReplayRejected":     operate.Editor,
	"RequeueDeadLetters": operate.Editor,
	"DismissDeadLetters": operate.Editor,
	"PauseQueue":         operate.Editor,
	"ResumeQueue":        operate.Editor,
	"SetQueueStream":     operate.Admin,
	"DropQueueStream":    operate.Admin,
	"SetQueueGroup":      operate.Editor,
	"CancelExecution":    operate.Editor,
	"CancelExecutions":   operate.Editor,

	"Audit":          operate.Admin,
	"BackUpAudit":    operate.Admin,
	"Members":        operate.Admin,
	"Size":           operate.Admin,
	"BackUpRecords":  operate.Admin,
	"CreateKey":      operate.Admin,
	"Keys":           operate.Admin,
	"PlanChange":     operate.Admin,
	"PutAccount":     operate.Admin,
	"PutEvents":      operate.Admin,
	"RemoveEvents":   operate.Admin,
	"DeleteAccount":  operate.Admin,
	"RestoreRecords": operate.Admin,
	"RevokeKey":      operate.Admin,
}

// Every call requires a caller. Without a caller or with an insufficient role, it is rejected
// before anything is read.
func TestEveryCallNeedsACaller(t *testing.T) {
	calls := reflect.ValueOf(operate.New(operate.Config{})) // panics if any dependency is used
	for i := range calls.NumMethod() {
		name, method := calls.Type().Method(i).Name, calls.Method(i)
		if method.Type().NumIn() < 2 || method.Type().In(1) != reflect.TypeFor[operate.Caller]() {
			t.Errorf("%s: its second argument is no Caller", name)
			continue
		}
		if name == "NoteSignIn" {
			continue // returns nothing; records a sign-in or a refused one
		}
		least, listed := mayCall[name]
		if !listed {
			t.Errorf("%s: mayCall does not say which role it needs", name)
		}
		for _, c := range []struct {
			caller operate.Caller
			want   string
		}{
			{operate.Caller{}, api.CodeUnauthorized},
			{operate.Caller{Kind: "stranger", Role: operate.Admin}, api.CodeUnauthorized},
			{operate.Caller{Kind: operate.CallerKindUser, Role: "owner"}, api.CodeUnauthorized},
			{operate.Caller{Kind: operate.CallerKindUser}, api.CodeUnauthorized},
			// There is no keyring, so no key is known.
			{
				operate.Caller{Kind: operate.CallerKindKey, Role: operate.Viewer},
				refusedKey(operate.Viewer.Includes(least)),
			},
			{
				operate.Caller{Kind: operate.CallerKindUser, Role: operate.Viewer},
				forbiddenUnless(operate.Viewer.Includes(least)),
			},
			{
				operate.Caller{Kind: operate.CallerKindUser, Role: operate.Viewer,
					AccountID: "acme"},
				forbiddenUnless(operate.Viewer.Includes(least)),
			},
			{
				operate.Caller{Kind: operate.CallerKindUser, Role: operate.Editor},
				forbiddenUnless(operate.Editor.Includes(least)),
			},
		} {
			if got := codeOf(t.Context(), method, c.caller); c.want != "" && got != c.want ||
				c.want == "" &&
					(got == api.CodeUnauthorized ||
						got == api.CodeForbidden && c.caller.AccountID == "") {
				t.Errorf("%s for %+v: %q, want %q", name, c.caller, got, c.want)
			}
		}
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

// codeOf returns the code that a call is rejected with. It returns "" if the call is not rejected,
// even if it panics afterwards because a dependency is missing.
func codeOf(ctx context.Context, method reflect.Value, caller operate.Caller) (code string) {
	defer func() {
		if recover() != nil {
			code = "" // there are no dependencies to use
		}
	}()
	in := []reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(caller)}
	for n := 2; n < method.Type().NumIn(); n++ {
		in = append(in, reflect.Zero(method.Type().In(n)))
	}
	out := method.Call(in)
	err, _ := reflect.TypeAssert[error](out[len(out)-1])
	if refused, ok := errors.AsType[*operate.Error](err); ok {
		return refused.Code
	}
	return ""
}

// The API's types name the roles in struct tags, which cannot be derived from the list of roles.
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
		{operate.Viewer, operate.Viewer, true},
		{operate.Viewer, operate.Editor, false},
		{operate.Editor, operate.Viewer, true},
		{operate.Admin, operate.Editor, true},
		{operate.Editor, operate.Admin, false},
		{operate.Admin, "owner", false},
		{"owner", operate.Viewer, false},
		{"", operate.Viewer, false},
		{"", "", false},
		{operate.Admin, "", false},
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
		if got := operate.LoopbackBase(base); got != want {
			t.Errorf("loopback(%q) = %q, want %q", base, got, want)
		}
	}
}
