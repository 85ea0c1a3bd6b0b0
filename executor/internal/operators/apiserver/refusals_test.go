package apiserver_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
)

func TestRefusalsAreListed(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "n")
	r.get("/workflows/none/refusals").refused(404, api.CodeNotFound)
	r.get("/workflows/wf/refusals?since=yesterday").refused(422, api.CodeInvalid)
	if a := r.get("/workflows/wf/refusals").is(200); string(a.body) !=
		`{"items":[],"nextCursor":""}` {
		t.Errorf("%s", a.body)
	}

	now := time.Now().UTC().Truncate(time.Minute)
	refused := func(code string, at time.Time, n, size int64, agent string) store.RefusalCount {
		return store.RefusalCount{
			WorkflowID: "wf", Code: code, Minute: at.Truncate(time.Minute), Count: n,
			Last: store.RefusedRequest{At: at, BodyBytes: size, UserAgent: agent},
		}
	}
	old := now.Add(-30 * time.Hour)
	r.check(r.store.AddRefusals(t.Context(), "report", now, []store.RefusalCount{
		refused("token_invalid", now, 17, 5, "curl/8"),
		refused("json_invalid", now.Add(-time.Hour), 2, -1, ""),
		refused("json_invalid", old, 1, 0, "old"),
	}))
	r.get("/workflows/wf/refusals?limit=201").refused(422, api.CodeInvalid)
	r.get("/workflows/wf/refusals?cursor=x").refused(422, api.CodeInvalid)
	var first, second api.List[api.Refusal]
	r.check(json.Unmarshal(r.get("/workflows/wf/refusals?limit=1").is(200).body, &first))
	r.check(json.Unmarshal(r.get("/workflows/wf/refusals?limit=1&cursor="+
		first.NextCursor).is(200).body, &second))
	if len(first.Items) != 1 || len(second.Items) != 1 || first.Items[0].Code != "token_invalid" ||
		second.Items[0].Code != "json_invalid" || second.NextCursor != "" {
		t.Errorf("%+v, %+v", first, second)
	}
	at := func(t time.Time) string { return t.Format(time.RFC3339) }
	token := `{"code":"token_invalid","count":17,"last":{"at":"` + at(now) +
		`","bodyBytes":5,"userAgent":"curl/8"}}`
	for query, want := range map[string]string{
		"": token +
			`,{"code":"json_invalid","count":2,"last":{"at":"` + at(now.Add(-time.Hour)) +
			`","bodyBytes":null,"userAgent":""}}`,
		"?since=" + url.QueryEscape(at(old)): token +
			`,{"code":"json_invalid","count":3,"last":{"at":"` + at(now.Add(-time.Hour)) +
			`","bodyBytes":null,"userAgent":""}}`,
		"?since=" + url.QueryEscape(at(now)): token,
	} {
		if a := r.get("/workflows/wf/refusals" + query).is(200); string(a.body) != `{"items":[`+
			want+`],"nextCursor":""}` {
			t.Errorf("%s:\n got %s\nwant %s", query, a.body, want)
		}
	}
}

func TestRefusalsOfAllWorkflowsAreListed(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.get("/refusals?since=yesterday").refused(422, api.CodeInvalid)
	r.get("/refusals?limit=201").refused(422, api.CodeInvalid)
	if a := r.get("/refusals").is(200); string(a.body) != `{"items":[],"nextCursor":""}` {
		t.Errorf("%s", a.body)
	}
	now := time.Now().UTC().Truncate(time.Minute)
	refused := func(workflow, code string, at time.Time) store.RefusalCount {
		return store.RefusalCount{
			WorkflowID: workflow,
			Code:       code,
			Minute:     at,
			Count:      2,
			Last:       store.RefusedRequest{At: at, BodyBytes: -1, UserAgent: "curl"},
		}
	}
	r.check(r.store.AddRefusals(t.Context(), "report", now, []store.RefusalCount{
		refused("", "workflow_not_found", now), refused("gone", "token_invalid", now),
		refused("wf", "rate_limited", now.Add(-time.Hour)),
		refused("wf", "json_invalid", now.Add(-30*time.Hour)),
	}))
	item := func(workflow, code string, at time.Time) string {
		return workflow + `"code":"` + code + `","count":2,"last":{"at":"` +
			at.Format(time.RFC3339) + `","bodyBytes":null,"userAgent":"curl"}}`
	}
	want := []string{
		item(`{"workflowId":"gone",`, "token_invalid", now), item(`{`, "workflow_not_found", now),
		item(`{"workflowId":"wf",`, "rate_limited", now.Add(-time.Hour)),
	}
	if a := r.get("/refusals").is(200); string(a.body) != `{"items":[`+strings.Join(want, ",")+
		`],"nextCursor":""}` {
		t.Errorf("got %s\nwant %s", a.body, want)
	}
	var page struct {
		Items      []json.RawMessage
		NextCursor string
	}
	for i := 0; i == 0 || page.NextCursor != ""; i++ {
		r.check(json.Unmarshal(r.get("/refusals?limit=1&cursor="+page.NextCursor).is(200).body,
			&page))
		if len(page.Items) != 1 || i >= len(want) || string(page.Items[0]) != want[i] {
			t.Fatalf("page %d: %s", i, page.Items)
		}
	}
	r.check(json.Unmarshal(r.get("/refusals?since="+
		url.QueryEscape(now.Add(-48*time.Hour).Format(time.RFC3339))).is(200).body, &page))
	if len(page.Items) != 4 {
		t.Errorf("since two days ago: %s", page.Items)
	}
	for _, text := range []string{
		"refusals:token_invalid", "all-refusals:1 wf", "all-refusals:x wf code",
		"all-refusals:1 wf code more", "all-refusals:",
	} {
		r.get("/refusals?cursor="+base64.RawURLEncoding.EncodeToString([]byte(text))).refused(422,
			api.CodeInvalid)
	}
}
