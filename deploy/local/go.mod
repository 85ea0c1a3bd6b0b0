module github.com/hookstart/hookstart/deploy/local

go 1.26.0

require (
	github.com/hookstart/hookstart/executor v0.0.0
	github.com/hookstart/hookstart/ingress v0.0.0
	github.com/hookstart/hookstart/proto v0.0.0
	github.com/hookstart/hookstart/shared v0.0.0
)

require (
	github.com/chromedp/cdproto v0.159.0 // indirect
	github.com/chromedp/chromedp v0.22.1 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/nats-io/nats.go v1.55.0 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/rogpeppe/go-internal v1.16.0 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	github.com/hookstart/hookstart/executor => ../../executor
	github.com/hookstart/hookstart/ingress => ../../ingress
	github.com/hookstart/hookstart/proto => ../../proto
	github.com/hookstart/hookstart/shared => ../../shared
)
