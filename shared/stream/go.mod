module github.com/hookstart/hookstart/shared/stream

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/hookstart/hookstart/proto v0.0.0
	github.com/hookstart/hookstart/shared/execution v0.0.0
	github.com/hookstart/hookstart/shared/retry v0.0.0
	github.com/nats-io/nats.go v1.55.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	github.com/hookstart/hookstart/proto => ../../proto
	github.com/hookstart/hookstart/shared/execution => ../execution
	github.com/hookstart/hookstart/shared/retry => ../retry
)
