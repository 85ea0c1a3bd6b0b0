package apiclient_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

// This example iterates over all workflows of an account, page by page.
func ExampleItems() {
	server := exampleAPI()
	defer server.Close()
	ctx, client := context.Background(), apiclient.New(server.URL, "the admin token, or a key")

	workflows := func(p apiclient.Page) (api.List[api.Workflow], error) {
		return client.Workflows(ctx, "acme", p)
	}
	for w, err := range apiclient.Items(workflows) {
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stdout, w.ID, w.Queue)
	}
	// Output:
	// invoices default
	// orders fast
}

// This example changes a workflow only if it has not been changed since it was read.
func ExampleClient_IfMatch() {
	server := exampleAPI()
	defer server.Close()
	ctx, client := context.Background(), apiclient.New(server.URL, "the admin token, or a key")

	var version string
	w, err := client.WithETag(&version).Workflow(ctx, "orders")
	if err != nil {
		panic(err)
	}
	_, err = client.IfMatch(version).PatchWorkflow(ctx, w.ID, apiclient.Patch{
		"queue":     "slow",
		"rateLimit": nil,
	})
	if api.IsCode(err, api.CodeChangedSince) {
		fmt.Fprintln(os.Stdout, "somebody was faster: read it again")
	}
	// Output: somebody was faster: read it again
}

// exampleAPI returns a server that responds like an executor. Somebody else keeps changing the
// workflow "orders" on it.
func exampleAPI() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/workflows", func(w http.ResponseWriter, r *http.Request) {
		page := `{"items": [{"id": "invoices", "queue": "default"}], "nextCursor": "2"}`
		if r.URL.Query().Get("cursor") == "2" {
			page = `{"items": [{"id": "orders", "queue": "fast"}], "nextCursor": ""}`
		}
		_, _ = io.WriteString(w, page)
	})
	mux.HandleFunc("GET /api/v1/workflows/orders", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"1"`)
		_, _ = io.WriteString(w, `{"id": "orders", "queue": "fast"}`)
	})
	mux.HandleFunc("PATCH /api/v1/workflows/orders", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-Match") != `"1"` {
			panic("the client sends no condition")
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, `{"status": 412, "code": "changed_since"}`)
	})
	return httptest.NewServer(mux)
}
