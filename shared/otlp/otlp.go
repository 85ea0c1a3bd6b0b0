// Package otlp sends a program's spans to a collector if OpenTelemetry's standard environment
// variables request it. The SDK reads these variables itself: OTEL_EXPORTER_OTLP_ENDPOINT,
// _HEADERS, _CERTIFICATE, OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_….
package otlp

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/shared/ops"
)

// shutdownTimeout limits how long stop may take to send the last spans, so that an unavailable
// collector does not delay the exit of the program.
const shutdownTimeout = 2 * time.Second

// Start returns the provider of a process's spans, or nil if tracing is off. service is the name of
// the service in the spans. The caller must call stop before the process exits, to send the
// remaining spans. If too many spans are waiting, new ones are dropped, so the program never waits
// for the collector.
func Start(
	ctx context.Context, service string, log logrus.FieldLogger,
) (provider trace.TracerProvider, stop func(), err error) {
	//nolint:forbidigo // OpenTelemetry's variables are no flags of ours
	on, err := tracingRequested(os.Getenv)
	if err != nil || !on {
		return nil, func() {}, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.WithError(err).Warn("traces were not sent")
	}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w; see the variables OTEL_EXPORTER_OTLP_…", err)
	}
	// resource.WithProcess is not used, because the command line may contain the admin token.
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceNamespace("hookstart"), semconv.ServiceName(service),
			semconv.ServiceVersion(ops.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w; see OTEL_RESOURCE_ATTRIBUTES", err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	stop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			log.WithError(err).Warn("the last traces were not sent")
		}
	}
	return p, stop, nil
}

// tracingRequested reports whether OpenTelemetry's environment variables request spans. It returns
// false if none of them is set, although OpenTelemetry would then send spans to a collector on this
// machine: such a collector hardly ever exists.
func tracingRequested(getenv func(string) string) (bool, error) {
	var given string // name of the endpoint variable in effect
	for _, name := range []string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT",
	} {
		if getenv(name) != "" {
			given = name
			break
		}
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return false, nil
	case exporter == "" && given == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: use otlp or none", exporter)
	}
	for _, name := range []string{
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL",
	} {
		if protocol := getenv(name); protocol != "" {
			if protocol != "http/protobuf" {
				return false,
					fmt.Errorf("%s=%s: hookstart speaks http/protobuf, to a collector's port 4318",
						name, protocol)
			}
			break
		}
	}
	if given != "" {
		// The error does not wrap err, because the URL may contain a password.
		if u, err := url.Parse(getenv(given)); err != nil ||
			(u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return false, fmt.Errorf("%s must be like http://collector:4318", given)
		}
	}
	return true, nil
}
