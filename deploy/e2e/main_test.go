package e2e

import (
	"context"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/program"
)

// withPrograms has a folder for the programs that tests build.
type withPrograms struct{ *testing.M }

func (m withPrograms) Run() int {
	dir, err := os.MkdirTemp("", "hookstart-programs-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	programs.dir, programs.path = dir, map[string]string{}
	return m.M.Run()
}

// TestMain makes the programs: the test binary, started under a program's name, is that
// program. So real processes are tested, with the race detector in them.
func TestMain(m *testing.M) {
	testscript.Main(withPrograms{m}, map[string]func(){
		"hookstart-local": func() {
			var c local.Config
			program.Main("hookstart-local", "", &c, func(ctx context.Context) error {
				c.Out = os.Stdout
				return local.Run(ctx, c)
			})
		},
		"test-runner": beRunner,
		"ingress": func() {
			var c ingress.Config
			program.Main("ingress", "", &c, func(ctx context.Context) error { return ingress.Run(ctx, c) })
		},
		"executor": func() {
			var c executor.Config
			program.Main("executor", "", &c, func(ctx context.Context) error { return executor.Run(ctx, c) })
		},
	})
}
