module github.com/hookstart/hookstart/shared/child

go 1.26.0
