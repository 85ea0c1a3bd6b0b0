package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain makes the programs: the test binary, started under a program's name, is that
// program.
func TestMain(m *testing.M) {
	if BeProgram() {
		return
	}
	os.Exit(m.Run())
}

// One short round of everything.
func TestRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	profiles := t.TempDir()
	var names []string
	for _, name := range variantNames {
		if !strings.HasSuffix(name, "-other") { // they need another build
			names = append(names, name)
		}
	}
	err := Run(t.Context(), Config{
		Rounds: 1, Burst: 50 * time.Millisecond, OpenRounds: 1, OpenBurst: 50 * time.Millisecond, OpenRate: 200,
		Connections: 4, BodyBytes: 1024, Workflows: 10, Variants: names, Seed: 1, Profile: profiles, Out: &out,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	_, tables, _ := strings.Cut(out.String(), "req/s x bare")
	for _, name := range names {
		if strings.Count(tables, "\n"+name+" ") != 2 {
			t.Errorf("no rows of %s:\n%s", name, &out)
		}
	}
	for _, role := range profiled {
		if info, err := os.Stat(profiles + "/" + role + ".prof"); err != nil || info.Size() == 0 {
			t.Errorf("the profile of %s: %v", role, err)
		}
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	for _, size := range []int{minBody, 1024, 1025, maxBody} {
		if text := body(size); len(text) != size || !json.Valid([]byte(text)) {
			t.Errorf("%d: %d bytes: %s", size, len(text), text)
		}
	}
}

// The benchmark ends when an answer is not the one that it is there to measure.
func TestAnswerLength(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 16\r\nDate: now\r\n\r\n"
	for text, want := range map[string]int{
		ok + `{"success":true}`: len(ok) + 16,
		ok + `{"success"`:       0,
		ok[:20]:                 0,
		ok + `{"deduplicated"`:  0, // not all of it is there
	} {
		if got, err := answerLength([]byte(text)); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + `{"deduplicated":true`,
	} {
		if _, err := answerLength([]byte(text)); err == nil {
			t.Errorf("%q is taken for a good answer", text)
		}
	}
}

func TestQuartiles(t *testing.T) {
	t.Parallel()
	if got := quartilesOf([]float64{5, 1, 3, 2, 4}); got != (quartiles{2, 3, 4}) {
		t.Errorf("%+v", got)
	}
	if got := quartilesOf([]float64{7}); got != (quartiles{7, 7, 7}) {
		t.Errorf("%+v", got)
	}
}
