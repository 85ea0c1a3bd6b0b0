package apiserver_test

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/store"
)

func TestRefusalsAreListed(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "n")
	r.get("/workflows/none/refusals").refused(404, api.CodeNotFound)
	r.get("/workflows/wf/refusals?since=yesterday").refused(422, api.CodeInvalid)
	if a := r.get("/workflows/wf/refusals").is(200); string(a.body) != `{"items":[],"nextCursor":""}` {
		t.Errorf("%s", a.body)
	}

	now := time.Now().UTC().Truncate(time.Minute)
	refused := func(code string, at time.Time, n, size int64, agent string) store.Refusal {
		return store.Refusal{
			WorkflowID: "wf", Code: code, Minute: at.Truncate(time.Minute), Count: n,
			Last: store.RefusedRequest{At: at, BodyBytes: size, UserAgent: agent},
		}
	}
	old := now.Add(-30 * time.Hour)
	r.check(r.store.AddRefusals(t.Context(), "report", now, []store.Refusal{
		refused("token_invalid", now, 17, 5, "curl/8"), refused("json_invalid", now.Add(-time.Hour), 2, -1, ""), refused("json_invalid", old, 1, 0, "old"),
	}))
	r.get("/workflows/wf/refusals?limit=201").refused(422, api.CodeInvalid)
	r.get("/workflows/wf/refusals?cursor=x").refused(422, api.CodeInvalid)
	var first, second api.List[api.Refusal]
	r.check(json.Unmarshal(r.get("/workflows/wf/refusals?limit=1").is(200).body, &first))
	r.check(json.Unmarshal(r.get("/workflows/wf/refusals?limit=1&cursor="+first.NextCursor).is(200).body, &second))
	if len(first.Items) != 1 || len(second.Items) != 1 || first.Items[0].Code != "token_invalid" || second.Items[0].Code != "json_invalid" || second.NextCursor != "" {
		t.Errorf("%+v, %+v", first, second)
	}
	at := func(t time.Time) string { return t.Format(time.RFC3339) }
	token := `{"code":"token_invalid","count":17,"last":{"at":"` + at(now) + `","bodyBytes":5,"userAgent":"curl/8"}}`
	for query, want := range map[string]string{
		"":                                   token + `,{"code":"json_invalid","count":2,"last":{"at":"` + at(now.Add(-time.Hour)) + `","bodyBytes":null,"userAgent":""}}`,
		"?since=" + url.QueryEscape(at(old)): token + `,{"code":"json_invalid","count":3,"last":{"at":"` + at(now.Add(-time.Hour)) + `","bodyBytes":null,"userAgent":""}}`,
		"?since=" + url.QueryEscape(at(now)): token,
	} {
		if a := r.get("/workflows/wf/refusals" + query).is(200); string(a.body) != `{"items":[`+want+`],"nextCursor":""}` {
			t.Errorf("%s:\n got %s\nwant %s", query, a.body, want)
		}
	}
}
