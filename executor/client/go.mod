module github.com/hookstart/hookstart/executor/client

go 1.26.0
