package api_test

import (
	"fmt"
	"os"

	"github.com/hookstart/hookstart/executor/client/api"
)

// This example treats a workflow that does not exist as already deleted. IsCode also recognizes an
// error that has been wrapped.
func ExampleIsCode() {
	err := fmt.Errorf("delete the workflow: %w", &api.Problem{
		Status: 404, Code: api.CodeNotFound, Detail: `There is no workflow "orders".`,
	})
	switch {
	case api.IsCode(err, api.CodeNotFound):
		fmt.Fprintln(os.Stdout, "already deleted")
	case err != nil:
		fmt.Fprintln(os.Stdout, err)
	}
	// Output: already deleted
}
