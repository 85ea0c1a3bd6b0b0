module github.com/hookstart/hookstart/deploy/lab

go 1.26.0

require golang.org/x/sys v0.49.0

require github.com/hookstart/hookstart/shared v0.0.0

replace github.com/hookstart/hookstart/shared => ../../shared
