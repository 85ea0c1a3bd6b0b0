package otlp

import (
	"strings"
	"testing"
)

// Tracing is off unless one of OpenTelemetry's standard variables is set. The variables determine
// where and how spans are sent. Unsupported settings are reported at startup.
func TestWanted(t *testing.T) {
	const endpoint, forTraces, exporter, protocol = "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"
	for name, c := range map[string]struct {
		env  map[string]string
		on   bool
		says string // text that the error must contain
	}{
		"nothing":     {nil, false, ""},
		"an endpoint": {map[string]string{endpoint: "http://collector:4318"}, true, ""},
		"an endpoint, traces": {
			map[string]string{forTraces: "https://collector/v1/traces"}, true, "",
		},
		"the exporter": {map[string]string{exporter: "otlp"}, true, ""},
		"other variables": {
			map[string]string{"OTEL_SERVICE_NAME": "x", protocol: "grpc"}, false, "",
		},
		"none": {
			map[string]string{exporter: "none", endpoint: "http://collector:4318"}, false, "",
		},
		"disabled": {
			map[string]string{"OTEL_SDK_DISABLED": "TRUE", endpoint: "http://collector:4318"},
			false, "",
		},
		"the protocol": {
			map[string]string{endpoint: "http://collector:4318", protocol: "http/protobuf"},
			true,
			"",
		},
		"gRPC": {
			map[string]string{endpoint: "http://collector:4317", protocol: "grpc"},
			false,
			"http/protobuf",
		},
		"gRPC for others": {
			map[string]string{
				endpoint:                             "http://c",
				protocol:                             "grpc",
				"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
			}, true, "",
		},
		"another exporter": {map[string]string{exporter: "zipkin"}, false, "otlp or none"},
		"no URL":           {map[string]string{endpoint: "collector:4318"}, false, endpoint},
		"a bad URL": {
			map[string]string{forTraces: "http://user:secret@\x7f"}, false, forTraces,
		},
	} {
		on, err := tracingRequested(func(name string) string { return c.env[name] })
		if on != c.on || (err == nil) != (c.says == "") {
			t.Errorf("%s: %v, %v", name, on, err)
		}
		if err != nil &&
			(!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
