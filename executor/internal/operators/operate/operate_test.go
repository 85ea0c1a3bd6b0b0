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
	"Account":         operate.RoleViewer,
	"Accounts":        operate.RoleViewer,
	"Activity":        operate.RoleViewer,
	"AllRefusals":     operate.RoleViewer,
	"Changed":         operate.RoleViewer,
	"CheckPublicURL":  operate.RoleViewer,
	"DeadLetters":     operate.RoleViewer,
	"Execution":       operate.RoleViewer,
	"Events":          operate.RoleViewer,
	"ExecutionDetail": operate.RoleViewer,
	"Executions":      operate.RoleViewer,
	"Installation":    operate.RoleViewer,
	"Origin":          operate.RoleViewer,
	"Plans":           operate.RoleViewer,
	"Quota":           operate.RoleViewer,
	"Refusals":        operate.RoleViewer,
	"Requests":        operate.RoleViewer,
	"Trigger":         operate.RoleViewer,
	"Sender":          operate.RoleViewer,
	"SenderPresets":   operate.RoleViewer,
	"LastRecognized":  operate.RoleViewer,
	"Watch":           operate.RoleViewer,
	"WhoAmI":          operate.RoleViewer,
	"Workflow":        operate.RoleViewer,
	"Workflows":       operate.RoleViewer,

	"AddSenderSecret":    operate.RoleEditor,
	"PutSender":          operate.RoleEditor,
	"RemoveSender":       operate.RoleEditor,
	"RemoveSenderSecret": operate.RoleEditor,
	"Activate":           operate.RoleEditor,
	"Deactivate":         operate.RoleEditor,
	"DeleteWorkflow":     operate.RoleEditor,
	"PutWorkflow":        operate.RoleEditor,
	"PatchWorkflow":      operate.RoleEditor,
	"PatchTrigger":       operate.RoleEditor,
	"TryFilter":          operate.RoleEditor,
	"TryOrderKey":        operate.RoleViewer,
	"PatchAccount":       operate.RoleAdmin,
	"RequeueExecution":   operate.RoleEditor,
	"RerunExecution":     operate.RoleEditor,
	"RerunTrigger":       operate.RoleEditor,
	"RotateToken":        operate.RoleEditor,
	"SetSamplePayload":   operate.RoleEditor,
	"SendTest":           operate.RoleEditor,
	"Queues":             operate.RoleViewer,
	"UnattendedQueues":   operate.RoleViewer,
	"ReplayExecution":    operate.RoleEditor,
	"ReplayRejected":     operate.RoleEditor,
	"RequeueDeadLetters": operate.RoleEditor,
	"DismissDeadLetters": operate.RoleEditor,
	"PauseQueue":         operate.RoleEditor,
	"ResumeQueue":        operate.RoleEditor,
	"SetQueueStream":     operate.RoleAdmin,
	"DropQueueStream":    operate.RoleAdmin,
	"SetQueueGroup":      operate.RoleEditor,
	"CancelExecution":    operate.RoleEditor,
	"CancelExecutions":   operate.RoleEditor,

	"Audit":          operate.RoleAdmin,
	"BackUpAudit":    operate.RoleAdmin,
	"Members":        operate.RoleAdmin,
	"Size":           operate.RoleAdmin,
	"BackUpRecords":  operate.RoleAdmin,
	"CreateKey":      operate.RoleAdmin,
	"Keys":           operate.RoleAdmin,
	"PlanChange":     operate.RoleAdmin,
	"PutAccount":     operate.RoleAdmin,
	"PutEvents":      operate.RoleAdmin,
	"RemoveEvents":   operate.RoleAdmin,
	"DeleteAccount":  operate.RoleAdmin,
	"RestoreRecords": operate.RoleAdmin,
	"RevokeKey":      operate.RoleAdmin,
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
			{operate.Caller{Kind: "stranger", Role: operate.RoleAdmin}, api.CodeUnauthorized},
			{operate.Caller{Kind: operate.CallerKindUser, Role: "owner"}, api.CodeUnauthorized},
			{operate.Caller{Kind: operate.CallerKindUser}, api.CodeUnauthorized},
			// There is no keyring, so no key is known.
			{
				operate.Caller{Kind: operate.CallerKindKey, Role: operate.RoleViewer},
				refusedKey(operate.RoleViewer.Includes(least)),
			},
			{
				operate.Caller{Kind: operate.CallerKindUser, Role: operate.RoleViewer},
				forbiddenUnless(operate.RoleViewer.Includes(least)),
			},
			{
				operate.Caller{Kind: operate.CallerKindUser, Role: operate.RoleViewer,
					AccountID: "acme"},
				forbiddenUnless(operate.RoleViewer.Includes(least)),
			},
			{
				operate.Caller{Kind: operate.CallerKindUser, Role: operate.RoleEditor},
				forbiddenUnless(operate.RoleEditor.Includes(least)),
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
