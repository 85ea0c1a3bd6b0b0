package program_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hookstart/hookstart/shared/program"
)

func TestAFlagThatNamesNoFile(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		"":           "",
		"plans.json": filepath.Join(here, "plans.json"),
		"/etc/plans": "/etc/plans",
	} {
		var config struct {
			Plans string `type:"path"`
		}
		if err := program.Parse(&config, "--plans="+value); err != nil || config.Plans != want {
			t.Errorf("--plans=%s: %q, %v; want %q", value, config.Plans, err, want)
		}
	}
}
