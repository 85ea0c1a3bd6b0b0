package release_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/hookstart/hookstart/deploy/release"
	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

const (
	root    = "../.."
	version = "v0.0.1"
)

// outside is a folder outside of the repository, with a go command that finds our modules only
// through a proxy.
type outside struct {
	t      *testing.T
	folder string
	env    []string
}

// newOutside makes a folder with the files of testdata, or an empty folder if testdata is "".
func newOutside(t *testing.T, testdata string) *outside {
	t.Helper()
	// This loads everything that a runner and its tests need into the ordinary module cache.
	download := exec.CommandContext(t.Context(), "go", "mod", "download")
	download.Dir = filepath.Join(root, "shared", "runner", "runnertest")
	download.Env = append(os.Environ(), "GOWORK=off")
	if said, err := download.CombinedOutput(); err != nil {
		t.Fatalf("go mod download: %v\n%s", err, said)
	}
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	for _, name := range release.Modules {
		if err := addToProxy(proxy, name, t.TempDir()); err != nil {
			t.Fatalf("module %s: %v", name, err)
		}
	}
	o := &outside{t: t, folder: t.TempDir()}
	// A separate module cache keeps ours free of these releases. Without paths in what is compiled,
	// the next run finds it in the build cache.
	o.env = append(os.Environ(),
		"GOWORK=off", "GOFLAGS=-modcacherw -trimpath -buildvcs=false", "CGO_ENABLED=0",
		"GOSUMDB=off", "GONOPROXY=none", "GOPRIVATE=",
		"GOMODCACHE="+filepath.Join(t.TempDir(), "modules"),
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+
			filepath.ToSlash(strings.TrimSpace(string(cache)))+"/cache/download")
	if testdata == "" {
		return o
	}
	if err := os.CopyFS(o.folder, os.DirFS(testdata)); err != nil {
		t.Fatal(err)
	}
	return o
}

// addToProxy writes the release of a module into a folder that serves as a module proxy: with
// GOPROXY=file://FOLDER the go command finds the module there. scratch is an empty folder.
func addToProxy(proxy, name, scratch string) error {
	goMod, err := release.GoMod(root, name, version)
	if err != nil {
		return err
	}
	if err := copyModule(filepath.Join(root, name), scratch); err != nil {
		return err
	}
	var archive bytes.Buffer
	err = errors.Join(
		os.WriteFile(filepath.Join(scratch, "go.mod"), goMod, 0o600),
		zip.CreateFromDir(&archive, module.Version{
			Path:    path.Join(release.Root, name),
			Version: version,
		}, scratch))
	if err != nil {
		return err
	}
	at := filepath.Join(proxy, filepath.FromSlash(release.Root), filepath.FromSlash(name), "@v")
	return errors.Join(
		os.MkdirAll(at, 0o700),
		os.WriteFile(filepath.Join(at, "list"), []byte(version+"\n"), 0o600),
		os.WriteFile(filepath.Join(at, version+".info"),
			fmt.Appendf(nil, `{"Version": %q, "Time": "2000-01-01T00:00:00Z"}`, version), 0o600),
		os.WriteFile(filepath.Join(at, version+".mod"), goMod, 0o600),
		os.WriteFile(filepath.Join(at, version+".zip"), archive.Bytes(), 0o600))
}

// copyModule copies the files of a module, without the modules beneath it and without the files
// that npm has put there.
func copyModule(from, to string) error {
	return filepath.WalkDir(from, func(found string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, found)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(found, "go.mod")); relative != "." && err == nil ||
				entry.Name() == "node_modules" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, relative), 0o700)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(found)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), content, 0o600)
	})
}

// modules returns the names of all modules that the build may use, sorted. "go list -m all" has the
// same names, but also asks when each version was made, which the module cache does not know of a
// module of which nothing is compiled.
func (o *outside) modules() []string {
	o.t.Helper()
	var names []string
	for version := range strings.FieldsSeq(o.run("mod", "graph")) {
		name, _, _ := strings.Cut(version, "@")
		if name != "go" && name != "toolchain" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// run runs a go command and returns what it writes to stdout.
func (o *outside) run(args ...string) string {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), "go", args...)
	cmd.Dir, cmd.Env = o.folder, o.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	said, err := cmd.Output()
	if err != nil {
		o.t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, said, &stderr)
	}
	return string(said)
}

func (o *outside) read(name string) string {
	o.t.Helper()
	content, err := os.ReadFile(filepath.Join(o.folder, name))
	if err != nil {
		o.t.Fatal(err)
	}
	return string(content)
}

// A runner in an empty module can be built and tested with the kit, and runs.
func TestARunnerFromOutside(t *testing.T) {
	t.Parallel()
	o := newOutside(t, "testdata/runner")
	o.run("mod", "init", "example.com/shouter")
	o.run("get", "github.com/hookstart/hookstart/shared/runner@"+version)
	o.run("get", "-t", ".") // go mod tidy would also get the imports of other modules' tests
	o.run("vet", "./...")
	o.run("test", "./...")
	o.run("build", "-o", "shouter", ".")

	nc := natstest.Start(t)
	hookstart := runnertest.NewIngress(t, nc.Connect(t))
	id := hookstart.Start(t, runnertest.Post{Body: "hello"})
	cmd := exec.CommandContext(t.Context(), filepath.Join(o.folder, "shouter"))
	cmd.Env = append(os.Environ(), "HOOKSTART_NATS_URL="+nc.URL())
	childtest.Launch(t, cmd)
	if got := hookstart.Await(t, id); string(got.Output) != `{"shouted":"HELLO"}` {
		t.Errorf("%+v", got)
	}
	checkLinks(t, o)
}

// The modules that other people import bring no server, exporter, logger or flag parser into an
// empty module.
func TestWhatTheModulesBring(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		imports string
		brings  []string // prefixes of all modules that it brings
		has     string
	}{
		{"shared/runner", []string{
			"example.com/empty", release.Root + "/proto", release.Root + "/shared/execution",
			release.Root + "/shared/retry",
			release.Root + "/shared/runner", release.Root + "/shared/stream",
			release.Root + "/shared/tracing",
			"github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/nats-io/nuid",
			"github.com/klauspost/compress",
			"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric",
			"go.opentelemetry.io/otel/trace", "go.opentelemetry.io/auto/sdk",
			"github.com/go-logr/", "github.com/cespare/xxhash/v2", "go.opentelemetry.io/otel/log",
			"google.golang.org/protobuf", "github.com/google/go-cmp", "golang.org/x/",
			// OpenTelemetry and protobuf require these modules for their own tests; none of them is
			// linked.
			"github.com/davecgh/go-spew", "github.com/golang/protobuf", "github.com/kr/pretty",
			"github.com/pmezard/go-difflib",
			"github.com/rogpeppe/go-internal", "github.com/stretchr/testify", "go.yaml.in/yaml/v3",
			"gopkg.in/",
		}, "github.com/nats-io/nats.go"},
		{
			"executor/client/apiclient", []string{
				"example.com/empty", release.Root + "/executor/client",
			}, release.Root + "/executor/client",
		},
	} {
		o := newOutside(t, "")
		source := fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n",
			release.Root+"/"+c.imports)
		if err := os.WriteFile(filepath.Join(o.folder, "main.go"), []byte(source),
			0o600); err != nil {
			t.Fatal(err)
		}
		o.run("mod", "init", "example.com/empty")
		o.run("get", release.Root+"/"+c.imports+"@"+version)
		o.run("build", "-o", os.DevNull, ".")
		all := o.modules()
		t.Logf("%s: modules of go mod graph\n%s", c.imports, strings.Join(all, "\n"))
		has := false
		for _, name := range all {
			has = has || name == c.has
			if !slices.ContainsFunc(c.brings, func(allowed string) bool {
				return name == allowed ||
					strings.HasSuffix(allowed, "/") && strings.HasPrefix(name, allowed)
			}) {
				t.Errorf("%s brings %s", c.imports, name)
			}
		}
		if !has {
			t.Errorf("%s does not bring %s", c.imports, c.has)
		}
	}
}

// checkLinks checks that a runner links nothing that serves, stores or reads flags.
func checkLinks(t *testing.T, o *outside) {
	t.Helper()
	linked := strings.Fields(o.run("list", "-deps", "."))
	if !slices.Contains(linked, "github.com/hookstart/hookstart/shared/stream") {
		t.Fatalf("the program links no stream: %v", linked)
	}
	for _, one := range linked {
		for _, not := range []string{
			"github.com/alecthomas/kong", "github.com/jackc/pgx", "github.com/nats-io/nats-server",
			"github.com/prometheus",
			"github.com/hookstart/hookstart/shared/embednats",
			"github.com/hookstart/hookstart/shared/program",
			"github.com/hookstart/hookstart/shared/registry",
			"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters",
			"google.golang.org/grpc", "modernc.org", "database/sql", "testing",
		} {
			if one == not || strings.HasPrefix(one, not+"/") {
				t.Errorf("a runner links %s", one)
			}
		}
	}
	sums := o.read("go.sum")
	t.Logf("a runner links %d packages; its go.sum has %d lines, its go.mod is\n%s", len(linked),
		strings.Count(sums, "\n"), o.read("go.mod"))
}
