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

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// tool returns the path of a program from the given environment variable. It skips the test if the
// variable is not set.
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

// With its default values, the chart produces the same objects as the kustomization. Two things may
// differ: only the kustomization has the namespace and the secrets, which it generates from files,
// and only the chart has the labels and annotations that Helm needs.
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
	// Remove the hash at the end of the names of generated objects, because the chart's names have
	// none.
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

// pods returns the pod template of an object, or nil if the object has none. If change is not nil,
// pods first applies it to the template's first container.
func pods(o object, change func(container object)) object {
	spec, _ := o["spec"].(object)
	template, _ := spec["template"].(object)
	if template != nil && change != nil {
		//nolint:errcheck // a panic fails the test
		change(template["spec"].(object)["containers"].([]any)[0].(object))
	}
	return template
}

// valuesCase holds values for the chart, and describes the objects that the chart must produce with
// these values.
type valuesCase struct {
	set  string
	with []string // elements "KIND/NAME: TEXT": the object must contain the text
	less []string // objects that must not exist, as KIND/NAME
}

// places returns a case that sets the scheduling, priority, annotations and memory limit of the
// pods of one part of the chart, such as the ingress.
func places(part string) valuesCase {
	set := []string{
		"nodeSelector.disk=ssd", "tolerations[0].key=dedicated", "tolerations[0].operator=Exists",
		"affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]." +
			"topologyKey=rack",
		"priorityClassName=high", "podAnnotations.team=hooks", "resources.limits.memory=3Gi",
	}
	want := []string{
		"disk: ssd", "key: dedicated", "topologyKey: rack", "priorityClassName: high",
		"team: hooks", "memory: 3Gi",
	}
	var c valuesCase
	for _, value := range set {
		c.set += "," + part + "." + value
	}
	c.set = c.set[1:]
	for _, text := range want {
		c.with = append(c.with, "Deployment/"+part+": "+text)
	}
	return c
}

// decode decodes an object as strictly as the Kubernetes API server does: unknown fields are an
// error. It skips the kinds that are not part of Kubernetes itself.
func decode(t *testing.T, name string, o object) {
	t.Helper()
	into := map[string]any{
		"ConfigMap":               &corev1.ConfigMap{},
		"Service":                 &corev1.Service{},
		"Deployment":              &appsv1.Deployment{},
		"StatefulSet":             &appsv1.StatefulSet{},
		"Ingress":                 &networkingv1.Ingress{},
		"NetworkPolicy":           &networkingv1.NetworkPolicy{},
		"PodDisruptionBudget":     &policyv1.PodDisruptionBudget{},
		"HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{},
	}
	kind, _, _ := strings.Cut(name, "/")
	switch kind {
	case "HTTPRoute", "ServiceMonitor", "PrometheusRule": // kinds that Kubernetes itself lacks
		return
	}
	text, err := yaml.Marshal(o)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into[kind])
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// settings returns the full names of all settings in values, such as nats.storage. values may be a
// nested part of the whole values, such as nats; prefix is then the beginning of the full names,
// such as "nats.".
func settings(prefix string, values object) (names []string) {
	for name, value := range values {
		if inner, ok := value.(object); ok && len(inner) > 0 {
			names = append(names, settings(prefix+name+".", inner)...)
		} else {
			names = append(names, prefix+name)
		}
	}
	return names
}

// Every value of the chart has its documented effect, and the objects that it changes are valid.
// Helm refuses invalid values.
func TestChartValues(t *testing.T) {
	helm, archive := tool(t, "HOOKSTART_HELM"), chart(t)
	command(t, ".", helm, "lint", "--strict", "--kube-version", "1.32.0", archive)
	cases := map[string]valuesCase{
		"servers of NATS of one's own": {
			set: "nats.enabled=false,nats.url=tls://nats.example.com:4333," +
				"networkPolicy.natsPort=4333",
			with: []string{
				"ConfigMap/hookstart: nats.example.com", "NetworkPolicy/ingress: port: 4333",
				"NetworkPolicy/executor: port: 4333", "NetworkPolicy/runners: port: 4333",
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
		"autoscaling": {
			set: "ingress.autoscaling.minReplicas=3,ingress.autoscaling.maxReplicas=30," +
				"ingress.autoscaling.targetRequestsInFlight=250m",
			with: []string{
				"HorizontalPodAutoscaler/ingress: minReplicas: 3",
				"HorizontalPodAutoscaler/ingress: maxReplicas: 30",
				"HorizontalPodAutoscaler/ingress: averageValue: 250m",
			},
		},
		"an Ingress": {
			set: "ingressRoute.enabled=true,ingressRoute.host=h.example," +
				"ingressRoute.tlsSecret=cert,ingressRoute.className=nginx," +
				"ingressRoute.annotations.issuer=public",
			with: []string{
				"Ingress/webhooks: host: h.example", "Ingress/webhooks: secretName: cert",
				"Ingress/webhooks: ingressClassName: nginx", "Ingress/webhooks: issuer: public",
			},
		},
		"a gateway": {
			set: "gatewayRoute.enabled=true,gatewayRoute.parentRefs[0].name=public," +
				"gatewayRoute.host=g.example",
			with: []string{"HTTPRoute/webhooks: name: public", "HTTPRoute/webhooks: - g.example"},
		},
		"monitoring": {
			set: "serviceMonitor.enabled=true,prometheusRule.enabled=true," +
				"serviceMonitor.interval=7s,serviceMonitor.labels.release=a," +
				"prometheusRule.labels.release=b,networkPolicy.monitoringNamespace=watch",
			with: []string{
				"ServiceMonitor/executor: interval: 7s", "ServiceMonitor/ingress: release: a",
				"PrometheusRule/hookstart: release: b",
				"NetworkPolicy/ingress: kubernetes.io/metadata.name: watch",
				"NetworkPolicy/executor: kubernetes.io/metadata.name: watch",
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
		"budgets": {
			set: "ingress.podDisruptionBudget.maxUnavailable=2," +
				"executor.podDisruptionBudget.maxUnavailable=3," +
				"nats.podDisruptionBudget.maxUnavailable=4",
			with: []string{
				"PodDisruptionBudget/ingress: maxUnavailable: 2",
				"PodDisruptionBudget/executor: maxUnavailable: 3",
				"PodDisruptionBudget/nats: maxUnavailable: 4",
			},
		},
		"places of ingresses": places("ingress"),
		"places of executors": places("executor"),
		"servers of NATS": {
			set: "nats.image=own/nats:3,nats.replicas=1,nats.storage=7Gi,nats.storageClass=fast," +
				"nats.resources.limits.memory=3Gi",
			with: []string{
				"StatefulSet/nats: image: own/nats:3", "Deployment/executor: --replicas=1",
				"StatefulSet/nats: storage: 7Gi", "StatefulSet/nats: storageClassName: fast",
				"StatefulSet/nats: memory: 3Gi",
			},
		},
		"the public URL": {
			set:  "publicURL=https://h.example",
			with: []string{"ConfigMap/hookstart: HOOKSTART_PUBLIC_URL: https://h.example"},
		},
		"no policies": {
			set:  "networkPolicy.enabled=false",
			less: []string{"NetworkPolicy/nothing", "NetworkPolicy/ingress"},
		},
		"a registry": {
			set: "image.registry=r.example/,image.tag=v9,image.pullSecrets[0].name=pull," +
				"image.pullPolicy=Never",
			with: []string{
				"Deployment/ingress: imagePullPolicy: Never",
				"StatefulSet/nats: imagePullPolicy: Never",
				"Deployment/ingress: image: r.example/hookstart/ingress:v9",
				"Deployment/executor: name: pull",
			},
		},
		"more": {
			set: "executor.extraArgs[0]=--log-level=debug,executor.extraEnv[0].name=A," +
				"executor.extraEnv[0].value=b,executor.replicas=4,executor.runnerGroups=q/g," +
				"ingress.extraArgs[0]=--log-level=warn,ingress.extraEnv[0].name=C," +
				"ingress.extraEnv[0].value=d",
			with: []string{
				"Deployment/ingress: --log-level=warn", "Deployment/ingress: value: d",
				"Deployment/executor: --log-level=debug", "Deployment/executor: value: b",
				"Deployment/executor: replicas: 4", "Deployment/executor: --runner-groups=q/g",
			},
		},
		"the database": {
			set:  "networkPolicy.databasePort=6543",
			with: []string{"NetworkPolicy/executor: port: 6543"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := render(t, archive, "--set", c.set)
			for name, o := range got {
				decode(t, name, o)
			}
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
	var values object
	in, err := os.ReadFile(filepath.Join("chart", "hookstart", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(in, &values); err != nil {
		t.Fatal(err)
	}
	for _, name := range settings("", values) {
		set := regexp.MustCompile(`(^|,)` + regexp.QuoteMeta(name) + `[=.\[]`)
		if !slices.ContainsFunc(slices.Collect(maps.Values(cases)), func(c valuesCase) bool {
			return set.MatchString(c.set)
		}) {
			t.Errorf("no case sets %s", name)
		}
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

// After an installation, Helm prints notes. They name the secrets that the user must create, and
// the next command.
func TestChartNotes(t *testing.T) {
	folder := t.TempDir()
	command(t, folder, "tar", "-xzf", chart(t))
	// helm template prints no notes, so this template puts them into an object.
	const template = `apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data: {text: {{ include (print .Template.BasePath "/NOTES.txt") . | quote }}}
`
	if err := os.WriteFile(filepath.Join(folder, "hookstart", "templates", "notes.yaml"),
		[]byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	notes := func(args ...string) string {
		o := render(t, filepath.Join(folder, "hookstart"), args...)["ConfigMap/notes"]
		return o["data"].(object)["text"].(string) //nolint:errcheck // a panic fails the test
	}
	const next = "\n  hookstart workflow list"
	said := notes("--set", "secrets.executorEnv=mine")
	for _, want := range []string{
		"in the namespace hookstart.",
		"  make-secrets.sh secrets nats-0.nats nats-1.nats nats-2.nats\n",
		"  kubectl -n hookstart create secret generic ingress --from-file=nats.nk=secrets/ingress.",
		"  kubectl -n hookstart create secret generic mine \\\n",
		"  kubectl -n hookstart create secret generic nats-tls ",
		"  kubectl -n hookstart port-forward deploy/executor 8081 &\n",
		"get secret mine -o jsonpath=", next,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %s", want, said)
		}
	}
	said = notes("--set", "nats.enabled=false,nats.url=nats://n:1")
	if strings.Contains(said, "nats-tls") || !strings.Contains(said, next) {
		t.Errorf("with other NATS servers: %s", said)
	}
}
