package soak

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// While one of three hosts is cut off, every accepted request is stored and recorded exactly once.
// The printed ledger must count at least one request, one change and one check: if there were none,
// the test would prove nothing.
func TestThreeHosts(t *testing.T) {
	var out bytes.Buffer
	err := RunPartitions(t.Context(), PartitionsConfig{
		Duration: 20 * time.Second, Seed: 3, Rate: 20, Senders: 20, Operators: 2, Only: "alone",
		NATSConfig: "../nats/cluster.conf", Verbose: true, Out: &out, failOnlyOnDataLoss: true,
	})
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{
		`acknowledged +(\d+)`, `faults +(\d+)`, `changes +(\d+)`, `checks +\d+ .*; (\d+) answered`,
		`run +(\d+)`,
	} {
		match := regexp.MustCompile(`(?m)^` + pattern).FindStringSubmatch(out.String())
		if match == nil {
			t.Errorf("the ledger has no %s", pattern)
			continue
		}
		if count, err := strconv.Atoi(match[1]); err != nil || count == 0 {
			t.Errorf("%s: it was to be more than 0, so that the ledger shows something", match[0])
		}
	}
}

// The seed alone determines the order of the partitions, their hosts and their durations, so that a
// failed soak can be repeated.
func TestPartitionsOfASeed(t *testing.T) {
	t.Parallel()
	sequence := func(seed uint64) (all []string) {
		random := rand.New(rand.NewPCG(seed, 0))
		for range 3 {
			for _, p := range randomPartitions(random) {
				all = append(all, p.String()+" "+p.duration.String())
			}
		}
		return all
	}
	if one, again := sequence(1), sequence(1); !slices.Equal(one, again) {
		t.Errorf("with the same seed: %v, then %v", one, again)
	}
	if one, other := sequence(1), sequence(2); slices.Equal(one, other) {
		t.Errorf("with two seeds the same: %v", one)
	}
}
