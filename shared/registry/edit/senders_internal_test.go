package edit

import (
	"testing"

	"github.com/hookstart/hookstart/shared/registry"
)

// An order key or a filter that uses a header with the sender's secret is reported only if it is
// new. Earlier versions accepted such settings, and the other settings of such a node can still be
// changed.
func TestWhatIsAlreadyShownHindersNoOtherChange(t *testing.T) {
	node := func(header, orderKey, filter string) *registry.Trigger {
		return &registry.Trigger{OrderKey: orderKey, Filter: filter, Sender: &registry.Sender{
			Preset: "header", Settings: map[string]string{"header": header},
		}}
	}
	const key, condition = "header:X-One", `{"header:X-One":"a"}`
	for _, c := range []struct {
		before, after *registry.Trigger
		want          string
	}{
		{node("X-One", key, condition), node("X-One", key, condition), ""},
		{node("X-One", key, ""), node("X-One", key, `{"ptr:/a":1}`), ""},
		{node("X-One", key, condition), node("X-One", key, `{"header:X-One":"b"}`), "filter"},
		{node("X-Two", key, ""), node("X-One", key, ""), "orderKey"},
		{node("X-One", key, ""), node("X-Two", key, ""), ""},
		{nil, node("X-One", "", condition), "filter"},
	} {
		got := ""
		if shown := newlyExposedSecret(c.before, c.after); shown != nil {
			got = shown.setting
		}
		if got != c.want {
			t.Errorf("%+v, then %+v: %q, want %q", c.before, c.after, got, c.want)
		}
	}
}
