module github.com/hookstart/hookstart/shared/durable

go 1.26.0
