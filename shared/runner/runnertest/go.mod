module github.com/hookstart/hookstart/shared/runner/runnertest

go 1.26.0

require (
	github.com/google/uuid v1.6.0
	github.com/hookstart/hookstart/shared/embednats v0.0.0
	github.com/hookstart/hookstart/shared/execution v0.0.0
	github.com/hookstart/hookstart/shared/runner v0.0.0
	github.com/hookstart/hookstart/shared/stream v0.0.0
	github.com/nats-io/nats.go v1.55.0
	go.opentelemetry.io/otel/trace v1.47.0
)

require (
	github.com/antithesishq/antithesis-sdk-go v0.8.0-default-no-op // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/hookstart/hookstart/proto v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/child v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/durable v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/retry v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/tracing v0.0.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/minio/highwayhash v1.0.4 // indirect
	github.com/nats-io/jwt/v2 v2.8.2 // indirect
	github.com/nats-io/nats-server/v2 v2.15.2 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/hookstart/hookstart/proto => ../../../proto
	github.com/hookstart/hookstart/shared/child => ../../child
	github.com/hookstart/hookstart/shared/durable => ../../durable
	github.com/hookstart/hookstart/shared/embednats => ../../embednats
	github.com/hookstart/hookstart/shared/execution => ../../execution
	github.com/hookstart/hookstart/shared/retry => ../../retry
	github.com/hookstart/hookstart/shared/runner => ..
	github.com/hookstart/hookstart/shared/stream => ../../stream
	github.com/hookstart/hookstart/shared/tracing => ../../tracing
)
