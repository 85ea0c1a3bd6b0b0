module github.com/hookstart/hookstart/deploy/bench

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	github.com/google/pprof v0.0.0-20260906184651-6331bc6350fe
	github.com/google/uuid v1.6.0
	github.com/hookstart/hookstart/deploy/lab v0.0.0
	github.com/hookstart/hookstart/deploy/local v0.0.0
	github.com/hookstart/hookstart/executor v0.0.0
	github.com/hookstart/hookstart/executor/client v0.0.0
	github.com/hookstart/hookstart/ingress v0.0.0
	github.com/hookstart/hookstart/shared v0.0.0
	github.com/hookstart/hookstart/shared/child v0.0.0
	github.com/hookstart/hookstart/shared/embednats v0.0.0
	github.com/hookstart/hookstart/shared/execution v0.0.0
	github.com/hookstart/hookstart/shared/retry v0.0.0
	github.com/hookstart/hookstart/shared/runner v0.0.0
	github.com/hookstart/hookstart/shared/stream v0.0.0
	github.com/julienschmidt/httprouter v1.3.0
	github.com/nats-io/nats.go v1.55.0
	github.com/tsenart/vegeta/v12 v12.13.0
	golang.org/x/exp v0.0.0-20260709172345-9ea1abe57597
	golang.org/x/sys v0.49.0
)

require (
	github.com/antithesishq/antithesis-sdk-go v0.8.0-default-no-op // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/coreos/go-oidc/v3 v3.21.0 // indirect
	github.com/danielgtaylor/huma/v2 v2.37.2 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/go-jose/go-jose/v4 v4.1.4 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.30.0 // indirect
	github.com/hookstart/hookstart/proto v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/durable v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/runner/runnermetrics v0.0.0 // indirect
	github.com/hookstart/hookstart/shared/tracing v0.0.0 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/josharian/intern v1.0.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/mailru/easyjson v0.7.7 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mfridman/interpolate v0.0.2 // indirect
	github.com/minio/highwayhash v1.0.4 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/nats-io/jwt/v2 v2.8.2 // indirect
	github.com/nats-io/nats-server/v2 v2.15.2 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/pressly/goose/v3 v3.29.0 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/rs/dnscache v0.0.0-20230804202142-fc85eb664529 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.47.0 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.opentelemetry.io/otel/sdk v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.opentelemetry.io/proto/otlp v1.11.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261005182115-fad411399dd8 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261005182115-fad411399dd8 // indirect
	google.golang.org/grpc v1.84.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	modernc.org/libc v1.79.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
	modernc.org/sqlite v1.60.1 // indirect
)

replace (
	github.com/hookstart/hookstart/deploy/lab => ../lab
	github.com/hookstart/hookstart/deploy/local => ../local
	github.com/hookstart/hookstart/executor => ../../executor
	github.com/hookstart/hookstart/executor/client => ../../executor/client
	github.com/hookstart/hookstart/ingress => ../../ingress
	github.com/hookstart/hookstart/proto => ../../proto
	github.com/hookstart/hookstart/shared => ../../shared
	github.com/hookstart/hookstart/shared/child => ../../shared/child
	github.com/hookstart/hookstart/shared/durable => ../../shared/durable
	github.com/hookstart/hookstart/shared/embednats => ../../shared/embednats
	github.com/hookstart/hookstart/shared/execution => ../../shared/execution
	github.com/hookstart/hookstart/shared/retry => ../../shared/retry
	github.com/hookstart/hookstart/shared/runner => ../../shared/runner
	github.com/hookstart/hookstart/shared/runner/runnermetrics => ../../shared/runner/runnermetrics
	github.com/hookstart/hookstart/shared/stream => ../../shared/stream
	github.com/hookstart/hookstart/shared/tracing => ../../shared/tracing
)

replace github.com/hookstart/hookstart/shared/runner/runnertest => ../../shared/runner/runnertest

// The module proxy has the go.mod of this version without its content.
exclude golang.org/x/exp v0.0.0-20261011100332-faecfb24eb49
