package operate

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/sender"
)

// Fields with a very long JSON pointer are not listed. Otherwise, an object with a long name and
// many members would take memory proportional to the product of both.
func TestLongPlacesAreNotListed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", maxPointerBytes)
	seen := fieldValueCounts{}
	seen.addRequest(&sender.Request{
		KnownJSON: true, Body: []byte(`{"` + long + `":{"a":1,"b":{"c":2}},"short":{"d":3}}`),
	})
	if len(seen) != 1 || seen["ptr:/short/d"]["3"] != 1 {
		t.Errorf("listed: %v", seen)
	}
}
