module github.com/hookstart/hookstart/deploy/local

go 1.26

require (
	github.com/hookstart/hookstart/executor v0.0.0
	github.com/hookstart/hookstart/ingress v0.0.0
	github.com/hookstart/hookstart/proto v0.0.0
	github.com/hookstart/hookstart/shared v0.0.0
)

replace (
	github.com/hookstart/hookstart/executor => ../../executor
	github.com/hookstart/hookstart/ingress => ../../ingress
	github.com/hookstart/hookstart/proto => ../../proto
	github.com/hookstart/hookstart/shared => ../../shared
)
