// Package child is how the programs that run hookstart's programs start them: so that they
// end with their parent, and hear nothing that is not for them.
package child

import (
	"os"
	"strings"
)

// Environment is this process's, without flags for the programs.
func Environment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "HOOKSTART_") {
			kept = append(kept, variable)
		}
	}
	return kept
}
