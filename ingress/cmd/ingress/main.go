// Command ingress is hookstart's webhook endpoint.
package main

import (
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	program.Main("ingress",
		"The webhook endpoint: a POST with a workflow's token starts one execution.", ingress.Run)
}
