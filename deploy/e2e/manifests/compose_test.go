package manifests

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// composed returns compose.yaml as docker compose reads it, with secrets like those that prepare.sh
// generates.
func composed(t *testing.T) *types.Project {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "compose")
	if err := os.MkdirAll(filepath.Join(folder, "secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"compose.yaml":     read(t, "compose", "compose.yaml"),
		"secrets/nats.env": "NATSD_ADMIN_NKEY=U\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var env []string
	for _, m := range regexp.MustCompile(
		`HOOKSTART_ADMIN_TOKEN|[A-Z]+_PASSWORD|HOOKSTART_PUBLIC_URL=`,
	).FindAllString(read(t, "compose", "prepare.sh"), -1) {
		env = append(env, strings.TrimSuffix(m, "=")+"=http://made")
	}
	options, err := cli.NewProjectOptions([]string{filepath.Join(folder, "compose.yaml")},
		cli.WithEnv(env))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestCompose(t *testing.T) {
	project := composed(t)
	programs := 0
	for name, service := range project.Services {
		env := map[string]string{}
		for variable, value := range service.Environment {
			if value != nil {
				env[variable] = *value
			}
		}
		program := strings.TrimPrefix(service.Image, "hookstart/")
		if program == service.Image {
			continue
		}
		programs++
		if !checkProgram(t, program, service.Command, env) {
			t.Errorf("%s: no such program: %s", name, service.Image)
		}
		if service.Build == nil || service.Build.Target != program {
			t.Errorf("%s: built as %+v", name, service.Build)
		}
		if !service.ReadOnly || !slices.Contains(service.CapDrop, "ALL") {
			t.Errorf("%s may write to its file system, or has capabilities", name)
		}
	}
	if programs != 4 {
		t.Errorf("%d services of ours", programs)
	}
	checkVariablesOfNATS(t,
		project.Services["nats-1"].Environment.Resolve(func(string) (string, bool) {
			return "", false
		}))
}

// checkVariablesOfNATS checks that env sets every variable that the servers' configuration uses,
// apart from the variables with public keys, whose names end with _NKEY.
func checkVariablesOfNATS(t *testing.T, env types.MappingWithEquals) {
	t.Helper()
	for _, file := range []string{"cluster.conf", "node.conf", "accounts.conf", "runner.conf"} {
		for _, m := range regexp.MustCompile(`\$(NATSD_\w+)`).FindAllStringSubmatch(read(t, "nats",
			file), -1) {
			if _, set := env[m[1]]; !set && !strings.HasSuffix(m[1], "_NKEY") {
				t.Errorf("%s reads %s, which nobody sets", file, m[1])
			}
		}
	}
}

// The Dockerfile builds an image for each program, from scratch and with a user other than root.
// Each image contains the program, which an earlier stage has compiled, and starts it.
func TestDockerfile(t *testing.T) {
	file := read(t, "Dockerfile")
	for _, program := range []string{"ingress", "executor", "hookstart", "hookstart-local"} {
		stage := regexp.MustCompile(`(?s)FROM base AS ` + program +
			`\n(.*?)(\n\n|$)`).FindStringSubmatch(file)
		if stage == nil {
			t.Errorf("no stage %s", program)
			continue
		}
		main := regexp.MustCompile(`\./(\S*cmd/` + program + `)\s`).FindStringSubmatch(file)
		if main == nil ||
			!strings.Contains(stage[1], "COPY --from=build /out/"+program+" /"+program) {
			t.Errorf("%s is not built, or not copied", program)
			continue
		}
		if _, err := os.Stat(filepath.Join(deploy, "..", main[1])); err != nil {
			t.Error(err)
		}
		entry := regexp.MustCompile(`ENTRYPOINT \[(.*)\]`).FindStringSubmatch(stage[1])
		if entry == nil {
			t.Errorf("%s has no entry point", program)
			continue
		}
		args := strings.Split(strings.ReplaceAll(entry[1], `"`, ""), ", ")
		if args[0] != "/"+program {
			t.Errorf("%s starts %s", program, args[0])
		}
		if program == "hookstart-local" {
			env := map[string]string{}
			for m := range strings.FieldsSeq(regexp.MustCompile(`(?m)^ENV (.*)$`).
				FindStringSubmatch(stage[1])[1]) {
				name, value, _ := strings.Cut(m, "=")
				env[name] = value
			}
			checkProgram(t, program, args[1:], env)
		}
	}
	for _, must := range []string{
		"CGO_ENABLED=0", "FROM scratch AS base", "USER 65532:65532", "ca-certificates.crt",
	} {
		if !strings.Contains(file, must) {
			t.Errorf("the Dockerfile has no %s", must)
		}
	}
}
