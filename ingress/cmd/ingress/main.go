// Command ingress is hookstart's webhook endpoint.
package main

import (
	"context"

	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	var flags struct {
		ingress.Config
		program.Version
	}
	program.Main("ingress", "The webhook endpoint: a POST with a workflow's token starts one execution.", &flags,
		func(ctx context.Context) error { return ingress.Run(ctx, flags.Config) })
}
