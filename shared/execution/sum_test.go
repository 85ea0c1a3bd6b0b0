package execution_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/execution"
)

func TestSHA256(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 10_000)
	for _, parts := range [][]string{
		nil, {""}, {"abc"}, {"a", "", "bc"}, {long}, {"x", long, "\x00"}, {"after a long one"},
	} {
		if got, want := execution.SHA256(parts...),
			sha256.Sum256([]byte(strings.Join(parts, ""))); got != want {
			t.Errorf("the sum of %.40q is %x, want %x", parts, got, want)
		}
	}
}

func BenchmarkSHA256(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		execution.SHA256("a delivery", "\x00", "of a workflow")
	}
}
