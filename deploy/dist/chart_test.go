package dist_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// tool returns the program named by an environment variable. It skips the test if the variable is
// not set.
func tool(t *testing.T, variable string) string {
	t.Helper()
	program := os.Getenv(variable)
	if program == "" {
		t.Skipf("%s names no program: make shipped sets it", variable)
	}
	return program
}

// chart packages the chart and returns the path of the archive.
func chart(t *testing.T) string {
	t.Helper()
	return filepath.Join(packed(t).Out, "hookstart-chart_1.2.3-rc.1.tgz")
}

type object = map[string]any

// render renders the chart and returns its objects, keyed by kind and name.
func render(t *testing.T, archive string, args ...string) map[string]object {
	t.Helper()
	args = append([]string{
		"template", "release", archive, "--namespace", "hookstart", "--kube-version", "1.32.0",
	}, args...)
	out, err := exec.CommandContext(t.Context(), tool(t, "HOOKSTART_HELM"), args...).Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return parse(t, string(out))
}

func parse(t *testing.T, text string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
			t.Fatalf("%v: %s", err, document)
		}
		if o == nil {
			continue
		}
		//nolint:errcheck // a panic fails the test
		name := o["kind"].(string) + "/" + o["metadata"].(object)["name"].(string)
		if all[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		all[name] = o
	}
	return all
}

// With its default values, the chart produces the same objects as the kustomization, except for the
// namespace, the secrets, which the kustomization generates from files, and the labels that name
// the tool that manages an object.
func TestChartMakesWhatTheKustomizationMakes(t *testing.T) {
	kustomize := tool(t, "HOOKSTART_KUSTOMIZE")
	folder := t.TempDir()
	for _, sub := range []string{"nats", "kubernetes"} {
		if err := os.CopyFS(filepath.Join(folder, sub),
			os.DirFS(filepath.Join(root, "deploy", sub))); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(folder, sub, "secrets"), 0o700); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(folder, sub, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`secrets/([\w.]+)`).FindAllStringSubmatch(string(text),
			-1) {
			if err := os.WriteFile(filepath.Join(folder, sub, "secrets", m[1]), []byte("A=made"),
				0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The names of objects that are generated from files end in a hash of those files.
	built := regexp.MustCompile(`(?m)^(.*ame: \S+)-[0-9a-z]{10}$`).ReplaceAllString(command(t,
		folder, kustomize, "build", "kubernetes"), "$1")
	want := parse(t, built)
	for _, o := range want {
		//nolint:errcheck // a panic fails the test
		pods(o, func(c object) {
			c["image"] = strings.Replace(c["image"].(string), ":dev", ":1.2.3-rc.1", 1)
		})
	}
	maps.DeleteFunc(want, func(name string, _ object) bool {
		return strings.HasPrefix(name, "Secret/") || strings.HasPrefix(name, "Namespace/")
	})
	got := render(t, chart(t))
	for name, o := range got {
		//nolint:errcheck // a panic fails the test
		labels := o["metadata"].(object)["labels"].(object)
		delete(labels, "app.kubernetes.io/managed-by")
		delete(labels, "helm.sh/chart")
		if template := pods(o, nil); template != nil {
			//nolint:errcheck // a panic fails the test
			metadata := template["metadata"].(object)
			//nolint:errcheck // a panic fails the test
			annotations := metadata["annotations"].(object)
			delete(annotations, "checksum/config")
			if len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
		if !reflect.DeepEqual(o, want[name]) {
			t.Errorf("%s: the chart has\n%v\nthe kustomization has\n%v", name, o, want[name])
		}
	}
	for name := range want {
		if got[name] == nil {
			t.Errorf("the chart has no %s", name)
		}
	}
	if len(want) < 15 {
		t.Errorf("the kustomization makes %v only", slices.Sorted(maps.Keys(want)))
	}
}

// pods applies change to an object's first container and returns the object's pod template, or nil
// if the object has none.
func pods(o object, change func(container object)) object {
	spec, _ := o["spec"].(object)
	template, _ := spec["template"].(object)
	if template != nil && change != nil {
		//nolint:errcheck // a panic fails the test
		change(template["spec"].(object)["containers"].([]any)[0].(object))
	}
	return template
}

// Every value of the chart has its documented effect.
func TestChartValues(t *testing.T) {
	helm, archive := tool(t, "HOOKSTART_HELM"), chart(t)
	command(t, ".", helm, "lint", "--strict", "--kube-version", "1.32.0", archive)
	for name, c := range map[string]struct {
		set  string
		with []string // text that each object, named KIND/NAME, must contain
		less []string // names of objects that must not exist
	}{
		"servers of NATS of one's own": {
			set: "nats.enabled=false,nats.url=tls://nats.example.com:4222",
			with: []string{
				"ConfigMap/hookstart: nats.example.com", "NetworkPolicy/ingress: port: 4222",
			},
			less: []string{
				"StatefulSet/nats", "Service/nats", "ConfigMap/nats-config",
				"PodDisruptionBudget/nats", "NetworkPolicy/nats",
			},
		},
		"secrets of one's own": {
			set: "secrets.ingress=a,secrets.executor=b,secrets.executorEnv=c,secrets.natsTLS=d," +
				"secrets.natsKeys=e",
			with: []string{
				"Deployment/ingress: secretName: a", "Deployment/executor: secretName: b",
				"Deployment/executor: name: c", "StatefulSet/nats: secretName: d",
				"StatefulSet/nats: name: e",
			},
		},
		"a second site copies the streams": {
			set: "nats.copied=true",
			with: []string{
				"StatefulSet/nats: - /etc/nats/first-site.conf",
				"StatefulSet/nats: name: NATSD_LEAF_LISTEN",
				"StatefulSet/nats: value: 0.0.0.0:7422",
				"StatefulSet/nats: containerPort: 7422", "NetworkPolicy/nats: port: copy",
				"ConfigMap/nats-config: NATSD_COPY_NKEY",
			},
		},
		"no autoscaling": {
			set:  "ingress.autoscaling.enabled=false,ingress.replicas=5",
			with: []string{"Deployment/ingress: replicas: 5"},
			less: []string{"HorizontalPodAutoscaler/ingress"},
		},
		"an Ingress": {
			set: "ingressRoute.enabled=true,ingressRoute.host=h.example," +
				"ingressRoute.tlsSecret=cert",
			with: []string{
				"Ingress/webhooks: host: h.example", "Ingress/webhooks: secretName: cert",
			},
		},
		"a gateway": {
			set:  "gatewayRoute.enabled=true,gatewayRoute.parentRefs[0].name=public",
			with: []string{"HTTPRoute/webhooks: name: public"},
		},
		"monitoring": {
			set: "serviceMonitor.enabled=true,prometheusRule.enabled=true",
			with: []string{
				"ServiceMonitor/ingress: jobLabel: app.kubernetes.io/name",
				"Service/executor-ops: port: 9091",
				"PrometheusRule/hookstart: {{ $labels.instance }}",
			},
		},
		"no budgets": {
			set: "ingress.podDisruptionBudget.enabled=false," +
				"executor.podDisruptionBudget.enabled=false,nats.podDisruptionBudget.enabled=false",
			less: []string{
				"PodDisruptionBudget/ingress", "PodDisruptionBudget/executor",
				"PodDisruptionBudget/nats",
			},
		},
		"no policies": {
			set:  "networkPolicy.enabled=false",
			less: []string{"NetworkPolicy/nothing", "NetworkPolicy/ingress"},
		},
		"a registry": {
			set: "image.registry=r.example/,image.tag=v9,image.pullSecrets[0].name=pull",
			with: []string{
				"Deployment/ingress: image: r.example/hookstart/ingress:v9",
				"Deployment/executor: name: pull",
			},
		},
		"more": {
			set: "executor.extraArgs[0]=--log-level=debug,executor.extraEnv[0].name=A," +
				"executor.extraEnv[0].value=b,executor.replicas=4,executor.runnerGroups=q/g",
			with: []string{
				"Deployment/executor: --log-level=debug", "Deployment/executor: value: b",
				"Deployment/executor: replicas: 4", "Deployment/executor: --runner-groups=q/g",
			},
		},
		"the database": {
			set:  "networkPolicy.databasePort=6543",
			with: []string{"NetworkPolicy/executor: port: 6543"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := render(t, archive, "--set", c.set)
			for _, want := range c.with {
				name, text, _ := strings.Cut(want, ": ")
				in, err := yaml.Marshal(got[name])
				if err != nil || !strings.Contains(string(in), text) {
					t.Errorf("no %q in %s: %s %v", text, name, in, err)
				}
			}
			for _, gone := range c.less {
				if got[gone] != nil {
					t.Errorf("%s is there", gone)
				}
			}
		})
	}
	for _, wrong := range []string{
		"nope=1", "ingress.replicas=0", "publicURL=ftp://x", "nats.replicas=2",
		"nats.enabled=false", "image.registry=noslash", "gatewayRoute.enabled=true",
	} {
		args := []string{"template", "release", archive, "--kube-version", "1.32.0", "--set", wrong}
		if out, err := exec.CommandContext(t.Context(), helm,
			args...).CombinedOutput(); err == nil {
			t.Errorf("--set %s is taken: %.200s", wrong, out)
		}
	}
}
