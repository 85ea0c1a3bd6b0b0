package soak

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The audit finds what it is there to find, and takes nothing else for it.
func TestExamine(t *testing.T) {
	first, repeat := answer{ExecutionID: "x"}, answer{ExecutionID: "x", Deduplicated: true}
	paused := []incident{{kind: "pause node", from: time.Now().Add(-time.Second)}}
	one := map[string]start{"x": {marker: "m", messages: 1}}
	for name, c := range map[string]struct {
		hasID   bool
		told    func(*book, *delivery)
		starts  map[string]start
		records map[string]int
		want    string // the numbers that are not 0
	}{
		"all is well":           {true, func(b *book, d *delivery) { b.accepted(d, first); b.accepted(d, repeat) }, one, map[string]int{"x": 1}, ""},
		"first answer lost":     {true, func(b *book, d *delivery) { b.failure(d, "broke", false); b.accepted(d, repeat) }, one, map[string]int{"x": 1}, ""},
		"refused, then stored":  {true, func(b *book, d *delivery) { b.refusal(d, "503"); b.accepted(d, repeat) }, one, map[string]int{"x": 1}, ""},
		"refused, not stored":   {false, func(b *book, d *delivery) { b.refusal(d, "503") }, nil, nil, ""},
		"not stored":            {true, func(b *book, d *delivery) { b.accepted(d, first) }, nil, nil, "lost"},
		"not recorded":          {true, func(b *book, d *delivery) { b.accepted(d, first) }, one, nil, "lost"},
		"unheard, not recorded": {false, func(b *book, d *delivery) { b.failure(d, "broke", false) }, one, nil, "lost unheard"},
		"twice in the stream": {
			true,
			func(b *book, d *delivery) { b.accepted(d, first) },
			map[string]start{"x": {marker: "m", messages: 2}},
			map[string]int{"x": 1},
			"doubled",
		},
		"two executions stored": {
			false,
			func(b *book, d *delivery) { b.accepted(d, first) },
			map[string]start{"x": {marker: "m", messages: 1}, "y": {marker: "m", messages: 1}},
			map[string]int{"x": 1, "y": 1},
			"doubled",
		},
		"two executions told": {
			true, func(b *book, d *delivery) {
				b.accepted(d, first)
				b.accepted(d, answer{ExecutionID: "y", Deduplicated: true})
			},
			map[string]start{"x": {marker: "m", messages: 1}, "y": {marker: "m", messages: 1}},
			map[string]int{"x": 1, "y": 1},
			"doubled doubled",
		},
		"twice the first":       {true, func(b *book, d *delivery) { b.accepted(d, first); b.accepted(d, first) }, one, map[string]int{"x": 1}, "doubled"},
		"never before":          {true, func(b *book, d *delivery) { b.accepted(d, repeat) }, one, map[string]int{"x": 1}, "misjudged"},
		"not connected, repeat": {true, func(b *book, d *delivery) { b.failure(d, "dial", true); b.accepted(d, repeat) }, one, map[string]int{"x": 1}, "misjudged"},
		"a ghost":               {false, func(b *book, d *delivery) { b.refusal(d, "503") }, one, map[string]int{"x": 1}, "ghost:pause node"},
		"given up":              {true, func(b *book, d *delivery) { b.refusal(d, "503") }, one, map[string]int{"x": 1}, "given-up"},
		"unheard":               {false, func(b *book, d *delivery) { b.failure(d, "broke", false) }, one, map[string]int{"x": 1}, "unheard"},
		"another's":             {true, func(b *book, d *delivery) { b.accepted(d, first) }, map[string]start{"x": {marker: "z", messages: 1}}, map[string]int{"x": 1}, "strange strange"},
		"recorded, not stored":  {true, func(b *book, d *delivery) { b.refusal(d, "503") }, nil, map[string]int{"x": 1}, "strange"},
	} {
		b := newBook()
		c.told(b, b.open("m", c.hasID))
		if got := found(examine(b, c.starts, c.records, paused)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// found names what an audit found, each as often as it did.
func found(a *audit) string {
	all := slices.Repeat([]string{"lost"}, len(a.lost))
	all = append(all, slices.Repeat([]string{"doubled"}, len(a.doubled))...)
	all = append(all, slices.Repeat([]string{"strange"}, len(a.strange))...)
	for cause := range a.ghosts {
		all = append(all, "ghost:"+cause)
	}
	all = append(all, slices.Repeat([]string{"given-up"}, a.ghostsWithID)...)
	all = append(all, slices.Repeat([]string{"misjudged"}, a.misjudged)...)
	all = append(all, slices.Repeat([]string{"unheard"}, a.unheard)...)
	return strings.Join(all, " ")
}
