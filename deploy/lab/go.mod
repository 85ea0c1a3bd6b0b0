module github.com/hookstart/hookstart/deploy/lab

go 1.26.0

require (
	github.com/hookstart/hookstart/shared/child v0.0.0
	golang.org/x/sys v0.49.0
)

replace github.com/hookstart/hookstart/shared/child => ../../shared/child
