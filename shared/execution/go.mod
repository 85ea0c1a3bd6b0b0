module github.com/hookstart/hookstart/shared/execution

go 1.26.0
