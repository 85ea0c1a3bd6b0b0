package sender_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/sender"
)

// FuzzSigners compares Verify with the independent signer of each provider in signers. Verify must
// accept a request that this signer has signed, and refuse it after one bit of the body has
// changed.
func FuzzSigners(f *testing.F) {
	all := signers()
	for i := range all {
		f.Add(uint8(i), "secret", []byte(`{"a":1}`), int64(1_790_000_000), uint16(3))
	}
	f.Fuzz(func(t *testing.T, which uint8, seed string, body []byte, at int64, position uint16) {
		g := &all[int(which)%len(all)]
		if at < 0 || at > 90_000_000_000 || seed == "" || len(seed) > 1000 {
			return
		}
		key, now := g.secret(seed), time.Unix(at, 0)
		s, err := sender.Compile(g.config(key))
		if err != nil {
			t.Fatal(err)
		}
		if g.preset == "shopify" && len(body) == 0 {
			return
		}
		r := g.request(key, string(body), now)
		if v := s.Verify(r, now); !v.OK() {
			t.Fatalf("%s: %+v", g.name, v)
		}
		if g.uncovers || len(r.Body) == 0 || g.name == "gitea form" || g.preset == "twilio" {
			return // a changed body may still be valid, such as another encoding of the same form
		}
		changed := *g.request(key, string(body), now)
		changed.Body = bytes.Clone(changed.Body)
		changed.Body[int(position)%len(changed.Body)] ^= 1
		if v := s.Verify(&changed, now); v.OK() {
			t.Fatalf("%s verifies a changed body", g.name)
		}
	})
}
