package ingress_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/probe"
)

// When an executor checks the public URL, it gets the usual response with an additional header.
// Other clients do not get that header.
func TestProbe(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	var keys [][]byte
	for _, settings := range s.Membership.IngressSettings() {
		keys = append(keys, settings.ProbeKey)
	}
	if len(keys) != 1 || len(keys[0]) != 32 {
		t.Fatalf("%d keys", len(keys))
	}
	send := func(path, token, challenge string) received {
		return s.send(request{
			path:   path,
			token:  token,
			header: map[string]string{probe.Header: challenge},
		})
	}
	plain := s.send(request{path: "/webhooks/-"})
	before := s.messages()
	for _, path := range []string{"/webhooks/-", "/webhooks/active", "/webhooks/once"} {
		for range 3 { // more than the rate limit of "once"
			challenge := probe.NewChallenge(keys)
			a := send(path, "", challenge.HeaderValue())
			if !challenge.IsValidResponse(a.header.Get(probe.Header)) {
				t.Errorf("%s: %v", path, a.header)
			}
			a.header.Del(probe.Header)
			a.header.Set("Date", plain.header.Get("Date"))
			if a.status != 400 || a.raw != plain.raw ||
				!maps.EqualFunc(a.header, plain.header, func(a, b []string) bool {
					return strings.Join(a, "") == strings.Join(b, "")
				}) {
				t.Errorf("%s: the response is not as ever: %+v", path, a)
			}
		}
	}
	used := probe.NewChallenge(keys)
	send("/webhooks/-", "", used.HeaderValue())
	for what, a := range map[string]received{
		"used before": send("/webhooks/-", "", used.HeaderValue()),
		"of a stranger": send("/webhooks/-", "",
			probe.NewChallenge([][]byte{probe.NewKey()}).HeaderValue()),
		"nonsense": send("/webhooks/-", "", "x.y"),
		"where it might start": send("/webhooks/active", s.token["active"],
			probe.NewChallenge(keys).HeaderValue()),
		"elsewhere": send("/", "", probe.NewChallenge(keys).HeaderValue()),
	} {
		if _, ok := a.header[probe.Header]; ok {
			t.Errorf("%s: %v", what, a.header)
		}
	}
	if n := s.messages() - before; n != 1 { // the start message of the request with the token
		t.Errorf("%d messages were stored", n)
	}
	if a := s.to("once", request{}); a.status != 200 {
		t.Errorf("the probe has used up the rate limit: %+v", a)
	}
	// Genuine probes are not counted as refusals. The reports count the plain request and the three
	// requests with an invalid probe header (token_missing), and the probe of another path
	// (not_found).
	if got := s.refusals(5); got[[2]string{"", "token_missing"}].Count != 4 ||
		got[[2]string{"", "not_found"}].Count != 1 || len(got) != 2 {
		t.Errorf("%+v", got)
	}
}
