package natstest_test

import (
	"context"
	"os"
	"slices"
	"testing"
)

// exampleTest returns a substitute for the *testing.T that an example does not have. done calls the
// functions registered with Cleanup, as happens when a test ends.
func exampleTest() (t testing.TB, done func()) {
	e := &exampleTB{}
	return e, func() {
		for _, f := range slices.Backward(e.cleanups) {
			f()
		}
	}
}

type exampleTB struct {
	testing.TB // nil, because only the methods below are used
	cleanups   []func()
}

func (e *exampleTB) Helper()                           {}
func (e *exampleTB) Name() string                      { return "Example" }
func (e *exampleTB) Context() context.Context          { return context.Background() }
func (e *exampleTB) Cleanup(f func())                  { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Fatal(args ...any)                 { panic(args) }
func (e *exampleTB) Fatalf(format string, args ...any) { panic([]any{format, args}) }

func (e *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "natstest")
	if err != nil {
		panic(err)
	}
	e.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
