module github.com/hookstart/hookstart/shared/retry

go 1.26.0
