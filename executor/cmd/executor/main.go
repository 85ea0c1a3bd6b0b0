// Command executor records hookstart's executions and serves the operators' API and the console.
package main

import (
	"github.com/hookstart/hookstart/executor/withpostgres"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	program.Main("executor", "Records executions; serves the operators' API and the console.",
		withpostgres.Run)
}
