package sender_test

import (
	"strings"
	"testing"
)

// BenchmarkVerify measures how long it takes to verify a request of 1 KB, to determine its delivery
// ID, and to choose the response.
func BenchmarkVerify(b *testing.B) {
	body := `{"id":"evt_1","object":"event","data":"` + strings.Repeat("x", 980) + `"}`
	for _, g := range signers() {
		switch g.name {
		case "stripe", "github", "slack", "standard-webhooks", "discord", "sendgrid":
		default:
			continue
		}
		b.Run(g.name, func(b *testing.B) {
			key := g.secret("one")
			s := compile(b, g.config(key))
			signed := g.request(key, body, noon)
			b.ReportAllocs()
			for b.Loop() {
				r := *signed
				v := s.Verify(&r, noon)
				if !v.OK() {
					b.Fatal(v)
				}
				if s.SignedDeliveryID(&r, v).ID == "" {
					_ = s.UnsignedDeliveryID(&r, v)
				}
				_ = s.Response(&r)
			}
		})
	}
}
