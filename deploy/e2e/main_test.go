package e2e

import (
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/executor/withpostgres"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/program"
)

// withPrograms runs the tests and then removes the temporary folder with the programs that they
// have built.
type withPrograms struct{ childtest.CleanEnvRunner }

func (m withPrograms) Run() int {
	dir, err := os.MkdirTemp("", "hookstart-programs-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	programs.dir, programs.path = dir, map[string]string{}
	// Run six of these tests in parallel instead of four: they mostly wait for programs and
	// browsers, and are still running when the tests of other packages have finished.
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == "4" {
		_ = parallel.Value.Set("6")
	}
	return m.CleanEnvRunner.Run()
}

// TestMain makes the test binary act as one of the programs when it is started under that program's
// name. The tests therefore run real processes, which have the race detector if the test binary has
// it.
func TestMain(m *testing.M) {
	natstest.ServeIfAsked()
	testscript.Main(withPrograms{childtest.CleanEnvRunner{M: m}}, map[string]func(){
		"hookstart-local": func() { program.Main("hookstart-local", "", local.Run) },
		"test-runner":     beRunner,
		"echo-runner":     beEchoRunner,
		"ingress":         func() { program.Main("ingress", "", ingress.Run) },
		"executor":        func() { program.Main("executor", "", withpostgres.Run) },
	})
}
