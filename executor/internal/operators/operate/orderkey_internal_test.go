package operate

import (
	"testing"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/filter"
)

// The ingress stores query parameters decoded. If they were decoded a second time, a filter and an
// order key would see a different value here than at the ingress.
func TestStoredQueryIsNotDecodedAgain(t *testing.T) {
	t.Parallel()
	place, err := filter.ParseOrderKeyPlace("query:customer")
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"a+b@x.org", "100%", "50%25", "a&b=c", "x;y", "ä ö", "plain"} {
		request := storedRequest{query: execution.Values{"customer": {value}}}
		if got := place.Key(request.toSenderRequest()); got != value {
			t.Errorf("%q became %q", value, got)
		}
		seen := fieldValueCounts{}
		seen.addRequest(request.toSenderRequest())
		if len(seen["query:customer"]) != 1 || seen["query:customer"][`"`+value+`"`] != 1 {
			t.Errorf("%q is listed as %v", value, seen)
		}
	}
}
