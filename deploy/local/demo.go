package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/runner"
)

// The IDs of the demo workflow, of its trigger node and of its queue. The workflow has its own
// queue, so that its runner never consumes from other queues.
const (
	demoWorkflowID = "demo"
	demoNodeID     = "webhook"
	demoQueue      = "demo"
)

// createDemoWorkflow creates and activates the demo workflow through the operators' API and returns
// its webhook URL. If the workflow already exists, createDemoWorkflow does not change it, even if
// it is deactivated. certFile is the certificate file of the operators' API, or "" if the API is
// served over plain HTTP.
func createDemoWorkflow(
	ctx context.Context, s StartedServices, certFile string,
) (webhookURL string, err error) {
	client := apiclient.New(s.ExecutorURL, s.AdminToken)
	if certFile != "" {
		transport, err := transportTrusting(certFile)
		if err != nil {
			return "", err
		}
		client = client.WithTransport(transport)
	}
	_, err = client.Workflow(ctx, demoWorkflowID)
	if api.IsCode(err, api.CodeNotFound) {
		if _, err = client.PutAccount(ctx, demoWorkflowID,
			api.PutAccount{Name: "Demo", Plan: "pro"}); err != nil {
			return "", err
		}
		if _, err = client.PutWorkflow(ctx, demoWorkflowID, api.PutWorkflow{
			AccountID: demoWorkflowID, Name: "Demo", Queue: demoQueue,
			Triggers: []api.PutTrigger{
				{NodeID: demoNodeID, Name: "Webhook", SamplePayload: []byte(`{"hello": "world"}`)},
			},
		}); err != nil {
			return "", err
		}
		_, err = client.Activate(ctx, demoWorkflowID)
	}
	if err != nil {
		return "", err
	}
	trigger, err := client.Trigger(ctx, demoWorkflowID, demoNodeID)
	return trigger.URL, err
}

// transportTrusting returns a transport for connections to this process's own listener. It trusts
// only the certificate in certFile. The listener is reached by its IP address, which the
// certificate need not contain, so the transport verifies the certificate against the first DNS
// name that the certificate contains.
func transportTrusting(certFile string) (http.RoundTripper, error) {
	//nolint:gosec // the operator's own file, which the listener has read
	chain, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(chain)
	if block == nil {
		return nil, fmt.Errorf("%s holds no certificate", certFile)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	own := x509.NewCertPool()
	own.AddCert(leaf)
	settings := &tls.Config{RootCAs: own, MinVersion: tls.VersionTLS12}
	if len(leaf.DNSNames) > 0 {
		settings.ServerName = strings.Replace(leaf.DNSNames[0], "*", "any", 1)
	}
	return &http.Transport{TLSClientConfig: settings}, nil
}

// runDemoRunner runs a runner for the demo workflow until ctx ends.
func runDemoRunner(
	ctx context.Context, inProcess []nats.Option, observe func(runner.Attempt),
	traces trace.TracerProvider, log logrus.FieldLogger,
) error {
	nc, err := nats.Connect("",
		append([]nats.Option{nats.Name("hookstart demo runner")}, inProcess...)...)
	if err != nil {
		return err
	}
	defer nc.Close()
	return runner.Run(ctx, nc, runner.Options{
		Queue:   demoQueue,
		Group:   demoWorkflowID,
		Log:     ops.NewSlogLogger(log),
		Observe: observe,
		Traces:  traces,
	}, func(_ context.Context, e runner.Execution) (any, error) {
		// The body {"fail":"why"} makes the execution fail, to show what a failure looks like and
		// how an execution is requeued.
		var asked struct{ Fail string }
		if json.Unmarshal(e.Input, &asked) == nil && asked.Fail != "" {
			return nil, runner.Permanent(errors.New(asked.Fail))
		}
		return map[string]any{"ranBy": "the demo runner", "inputBytes": len(e.Input)}, nil
	})
}
