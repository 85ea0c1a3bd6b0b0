package apiserver_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
)

func TestOpenAPIDocument(t *testing.T) {
	t.Parallel()
	r := start(t)
	a := r.get("/openapi.json").is(200)
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	type media struct {
		Schema map[string]any
	}
	type operation struct {
		OperationID string
		Summary     string
		Parameters  []struct{ Name, In string }
		RequestBody *struct {
			Required bool
			Content  map[string]media
		}
		Responses map[string]struct {
			Description string
			Content     map[string]media
		}
	}
	var document struct {
		OpenAPI    string
		Info       struct{ Title, Version string }
		Security   []map[string][]string
		Paths      map[string]map[string]operation
		Components struct {
			Schemas         map[string]any
			SecuritySchemes map[string]struct{ Type, Scheme string }
		}
	}
	r.check(json.Unmarshal(a.body, &document))
	if text := string(a.body); strings.Contains(text, "patternDescription") ||
		!strings.Contains(text, `"servers":[{"url":"/"}]`) {
		t.Error("linters refuse a member that OpenAPI does not know, and a document without " +
			"servers")
	}
	if !strings.HasPrefix(document.OpenAPI, "3.1.") || document.Info.Title == "" ||
		document.Info.Version == "" {
		t.Errorf("openapi %q, info %+v", document.OpenAPI, document.Info)
	}
	if len(document.Security) != 1 {
		t.Fatalf("security %v", document.Security)
	}
	for name := range document.Security[0] {
		if s := document.Components.SecuritySchemes[name]; s.Type != "http" ||
			s.Scheme != "bearer" {
			t.Errorf("security scheme %q: %+v", name, s)
		}
	}

	routes := map[string]string{
		"GET /plans":                                            "200",
		"GET /accounts":                                         "200",
		"GET /accounts/{id}":                                    "200 404",
		"PUT /accounts/{id}":                                    "200 201 412 413 422",
		"DELETE /accounts/{id}":                                 "204 403 404 409 412",
		"GET /accounts/{id}/events":                             "200 404",
		"PUT /accounts/{id}/events":                             "200 201 404 412 413 422",
		"DELETE /accounts/{id}/events":                          "204 404 412",
		"PATCH /accounts/{id}":                                  "200 404 412 413 422",
		"PATCH /workflows/{id}":                                 "200 404 409 412 413 422",
		"PATCH /workflows/{id}/triggers/{nodeId}":               "200 404 409 412 413 422",
		"GET /senders":                                          "200",
		"GET /workflows/{id}/triggers/{nodeId}/sender":          "200 404 409",
		"PUT /workflows/{id}/triggers/{nodeId}/sender":          "200 201 404 409 412 413 422",
		"DELETE /workflows/{id}/triggers/{nodeId}/sender":       "204 404 412",
		"POST /workflows/{id}/triggers/{nodeId}/sender/secrets": "201 404 409 412 413 422",
		"DELETE /workflows/{id}/triggers/{nodeId}/sender/secrets/{secretId}": "204 404 409 412",
		"GET /workflows":                                       "200",
		"GET /workflows/{id}":                                  "200 404",
		"PUT /workflows/{id}":                                  "200 201 404 409 412 413 422",
		"DELETE /workflows/{id}":                               "204 404 412",
		"POST /workflows/{id}/activate":                        "200 403 404 412",
		"POST /workflows/{id}/deactivate":                      "200 404 412",
		"GET /workflows/{id}/refusals":                         "200 404 422",
		"GET /workflows/{id}/triggers/{nodeId}":                "200 404",
		"PUT /workflows/{id}/triggers/{nodeId}/sample-payload": "200 404 412 413 422",
		"POST /workflows/{id}/triggers/{nodeId}/rotate-token":  "200 404 409 412 413 422",
		"POST /workflows/{id}/triggers/{nodeId}/rerun":         "200 404 409",
		"POST /workflows/{id}/triggers/{nodeId}/send-test":     "200 404 409 413 422 502",
		"GET /refusals":                                        "200 422",
		"GET /public-url":                                      "200",
		"GET /queues":                                          "200 422",
		"POST /queues/{queue}/pause":                           "200 404 413",
		"POST /queues/{queue}/resume":                          "200 404",
		"PUT /queues/{queue}/groups/{group}":                   "200 404 413",
		"PUT /queues/{queue}/stream":                           "200 404 409 413",
		"DELETE /queues/{queue}/stream":                        "204 404 409",
		"GET /executions":                                      "200 422",
		"GET /executions/{id}":                                 "200 404",
		"POST /executions/{id}/rerun":                          "200 404 409",
		"POST /executions/{id}/requeue":                        "200 404 409",
		"GET /dead-letters":                                    "200 422",
		"GET /executions/stream":                               "200 422 429",
		"GET /whoami":                                          "200",
		"GET /keys":                                            "200 422",
		"POST /keys":                                           "201 413 422",
		"DELETE /keys/{id}":                                    "204 404",
		"GET /members":                                         "200",
		"GET /size":                                            "200",
		"GET /backup/audit":                                    "200 422",
		"GET /backup/records":                                  "200",
		"POST /backup/records":                                 "204 409 413 422",
		"POST /executions/{id}/replay":                         "200 403 404 409 422",
		"POST /executions/replay":                              "200 403 413 422",
		"POST /executions/{id}/cancel":                         "200 404 409",
		"POST /executions/cancel":                              "200 403 413 422",
		"POST /dead-letters/requeue":                           "200 403 413 422",
		"POST /dead-letters/dismiss":                           "200 403 413 422",
		"GET /audit":                                           "200 422",

		"GET /workflows/{id}/triggers/{nodeId}/order-key-trial": "200 404 422",
	}
	seen := map[string]bool{}
	for path, methods := range document.Paths {
		for method, op := range methods {
			route := strings.ToUpper(method) + " " + strings.TrimPrefix(path, "/api/v1")
			statuses, wanted := routes[route]
			if !wanted {
				t.Errorf("%s is documented", route)
			}
			delete(routes, route)
			if seen[op.OperationID] ||
				!regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`).MatchString(op.OperationID) ||
				op.Summary == "" {
				t.Errorf("%s: operationId %q, summary %q", route, op.OperationID, op.Summary)
			}
			seen[op.OperationID] = true
			expected := append(strings.Fields(statuses), "401", "403", "422", "500", "503")
			for status := range op.Responses {
				if !slices.Contains(expected, status) {
					t.Errorf("%s: %s is documented", route, status)
				}
			}
			for _, status := range expected {
				response, documented := op.Responses[status]
				problem := response.Content["application/problem+json"].Schema["$ref"] ==
					"#/components/schemas/Problem"
				if !documented || response.Description == "" || problem != (status >= "400") {
					t.Errorf("%s: %s is documented as %+v", route, status, response)
				}
			}
			for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				if !slices.ContainsFunc(op.Parameters, func(p struct{ Name, In string }) bool {
					return p.Name == name[1] && p.In == "path"
				}) {
					t.Errorf("%s: no parameter %s", route, name[1])
				}
			}
			if method == "put" &&
				(op.RequestBody == nil || !op.RequestBody.Required ||
					op.RequestBody.Content["application/json"].Schema == nil) {
				t.Errorf("%s: request body %+v", route, op.RequestBody)
			}
		}
	}
	for route := range routes {
		t.Errorf("%s is not documented", route)
	}
	for _, ref := range regexp.MustCompile(`"\$ref":"([^"]*)"`).
		FindAllStringSubmatch(string(a.body), -1) {
		name, ok := strings.CutPrefix(ref[1], "#/components/schemas/")
		if !ok || document.Components.Schemas[name] == nil {
			t.Errorf("reference to nowhere: %s", ref[1])
		}
	}
}

func TestNothingBesidesTheCallsIsServed(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, path := range []string{
		"/api/v1/openapi.yaml", "/api/v1/openapi-3.0.json", "/api/v1/docs",
		"/api/v1/schemas/Account.json", "/api/v1/schemas/Account",
		"/api/v1/plans/", "/api/v1//plans", "/api/v1/PLANS", "/api/v1", "/api/",
		"/api/v1/executions/stream/", "/api/v2/plans",
	} {
		r.get(path).refused(404, api.CodeNotFound)
	}
	a := r.get("/plans").is(200)
	if strings.Contains(string(a.body), "$schema") || a.header.Get("Link") != "" {
		t.Errorf("links to a schema: %s", a.body)
	}
}
