package edit

import (
	"fmt"
	"strings"

	"github.com/hookstart/hookstart/shared/registry/consistency"
)

// requireCapability returns an error that wraps ErrIngressTooOld if a live ingress lacks a
// capability.
func (e *Editor) requireCapability(c consistency.Capability) error {
	if lacking := e.membership.IngressesWithout(c); len(lacking) > 0 {
		return fmt.Errorf("%w: %s", ErrIngressTooOld, strings.Join(lacking, ", "))
	}
	return nil
}
