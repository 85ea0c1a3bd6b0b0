module github.com/hookstart/hookstart/deploy/release

go 1.26.0

require (
	github.com/hookstart/hookstart/shared/child v0.0.0
	github.com/hookstart/hookstart/shared/embednats v0.0.0
	github.com/hookstart/hookstart/shared/runner/runnertest v0.0.0
	golang.org/x/mod v0.42.0
)

require (
	github.com/antithesishq/antithesis-sdk-go v0.8.0-default-no-op // indirect
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hookstart/hookstart/proto v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/durable v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/execution v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/retry v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/stream v0.0.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/minio/highwayhash v1.0.4 // indirect
	github.com/nats-io/jwt/v2 v2.8.2 // indirect
	github.com/nats-io/nats-server/v2 v2.15.2 // indirect
	github.com/nats-io/nats.go v1.55.0 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/hookstart/hookstart/proto => ../../proto
	github.com/hookstart/hookstart/shared/child => ../../shared/child
	github.com/hookstart/hookstart/shared/durable => ../../shared/durable
	github.com/hookstart/hookstart/shared/embednats => ../../shared/embednats
	github.com/hookstart/hookstart/shared/execution => ../../shared/execution
	github.com/hookstart/hookstart/shared/retry => ../../shared/retry
	github.com/hookstart/hookstart/shared/runner/runnertest => ../../shared/runner/runnertest
	github.com/hookstart/hookstart/shared/stream => ../../shared/stream
)

replace github.com/hookstart/hookstart/shared/runner => ../../shared/runner

replace github.com/hookstart/hookstart/shared/tracing => ../../shared/tracing
