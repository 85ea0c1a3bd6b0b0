package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// objects decodes manifests into the Go types of Kubernetes. The test fails if a manifest has an
// unknown field.
func objects(t *testing.T, manifests string) []any {
	t.Helper()
	var all []any
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		object, ok := map[string]any{
			"v1 ConfigMap":                           &corev1.ConfigMap{},
			"v1 Namespace":                           &corev1.Namespace{},
			"v1 Secret":                              &corev1.Secret{},
			"v1 Service":                             &corev1.Service{},
			"apps/v1 Deployment":                     &appsv1.Deployment{},
			"apps/v1 StatefulSet":                    &appsv1.StatefulSet{},
			"autoscaling/v2 HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{},
			"networking.k8s.io/v1 NetworkPolicy":     &networkingv1.NetworkPolicy{},
			"policy/v1 PodDisruptionBudget":          &policyv1.PodDisruptionBudget{},
		}[kind.APIVersion+" "+kind.Kind]
		if !ok {
			t.Fatalf("%s %s is not known here", kind.APIVersion, kind.Kind)
		}
		inJSON, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			t.Fatal(err)
		}
		// Decode case-sensitively, like the API server, which ignores a field whose name differs in
		// case.
		strict, err := kjson.UnmarshalStrict(inJSON, object)
		if err := errors.Join(append(strict, err)...); err != nil {
			t.Errorf("%s: %v\n%s", kind.Kind, err, document)
		}
		all = append(all, object)
	}
}

// manifests returns the contents of all files that the kustomizations list as resources.
func manifests(t *testing.T) string {
	t.Helper()
	var files []string
	for _, file := range []string{
		"nats/kubernetes.yaml", "kubernetes/namespace.yaml", "kubernetes/ingress.yaml",
		"kubernetes/executor.yaml", "kubernetes/network.yaml",
	} {
		files = append(files, read(t, file))
	}
	return strings.Join(files, "\n---\n")
}

func TestKubernetes(t *testing.T) {
	pods := map[string]corev1.PodTemplateSpec{}
	services, metrics := map[string]*corev1.Service{}, ""
	var selectors []map[string]string
	var policies []*networkingv1.NetworkPolicy
	for _, object := range objects(t, manifests(t)) {
		switch o := object.(type) {
		case *appsv1.Deployment:
			pods[o.Name] = o.Spec.Template
			selectors = append(selectors, o.Spec.Selector.MatchLabels)
		case *appsv1.StatefulSet:
			pods[o.Name] = o.Spec.Template
			selectors = append(selectors, o.Spec.Selector.MatchLabels)
		case *corev1.Service:
			services[o.Name] = o
			selectors = append(selectors, o.Spec.Selector)
		case *policyv1.PodDisruptionBudget:
			selectors = append(selectors, o.Spec.Selector.MatchLabels)
		case *networkingv1.NetworkPolicy:
			policies = append(policies, o)
		case *autoscalingv2.HorizontalPodAutoscaler:
			if _, ok := pods[o.Spec.ScaleTargetRef.Name]; !ok {
				t.Errorf("the autoscaler scales %s", o.Spec.ScaleTargetRef.Name)
			}
			metrics += o.Spec.Metrics[0].Pods.Metric.Name
		}
	}
	if len(pods) != 3 {
		t.Errorf("%d kinds of pods", len(pods))
	}
	for _, selector := range selectors {
		if !selectsSome(selector, pods) {
			t.Errorf("%v selects no pod", selector)
		}
	}
	for name, service := range services {
		for _, port := range service.Spec.Ports {
			if target := port.TargetPort.StrVal; target != "" && !hasPort(pods[name], target) {
				t.Errorf("service %s: no port %s", name, target)
			}
		}
	}
	for _, policy := range policies {
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				if pod := policy.Spec.PodSelector.MatchLabels["app.kubernetes.io/name"]; !hasPort(
					pods[pod], port.Port.StrVal,
				) {
					t.Errorf("policy %s: %s has no port %s", policy.Name, pod, port.Port)
				}
			}
		}
	}
	if observed, err := os.ReadFile(filepath.Join(deploy, "../ingress/observe.go")); err != nil ||
		!strings.Contains(string(observed), `"`+metrics+`"`) {
		t.Errorf("ingress has no metric %s (%v)", metrics, err)
	}
	for name, pod := range pods {
		checkPod(t, name, pod.Spec)
	}
	checkPolicies(t, policies, pods)
	env := types.MappingWithEquals{}
	for _, v := range pods["nats"].Spec.Containers[0].Env {
		env[v.Name] = &v.Value
	}
	checkVariablesOfNATS(t, env)
}

func selectsSome(selector map[string]string, pods map[string]corev1.PodTemplateSpec) bool {
	for _, pod := range pods {
		all := true
		for key, value := range selector {
			all = all && pod.Labels[key] == value
		}
		if all {
			return true
		}
	}
	return false
}

// checkPolicies checks that the network policies allow exactly the expected connections within the
// namespace, and that each policy selects a pod. The policy "nothing" forbids all connections that
// no other policy allows.
func checkPolicies(
	t *testing.T,
	policies []*networkingv1.NetworkPolicy,
	pods map[string]corev1.PodTemplateSpec,
) {
	t.Helper()
	callers := maps.Clone(pods)
	for name, label := range map[string]string{
		"runner": "hookstart/runner", "operators": "hookstart/operators", "stranger": "a",
	} {
		var pod corev1.PodTemplateSpec
		pod.Labels = map[string]string{label: "true"}
		callers[name] = pod
	}
	for _, policy := range policies {
		if !selectsSome(policy.Spec.PodSelector.MatchLabels, callers) {
			t.Errorf("policy %s selects no pod", policy.Name)
		}
	}
	var allowed []string
	for from, caller := range callers {
		for to, pod := range pods {
			for _, port := range pod.Spec.Containers[0].Ports {
				if admits(t, policies, networkingv1.PolicyTypeEgress, caller, pod, port) &&
					admits(t, policies, networkingv1.PolicyTypeIngress, pod, caller, port) {
					allowed = append(allowed, from+" to "+to+" "+port.Name)
				}
			}
		}
	}
	slices.Sort(allowed)
	if want := []string{
		"executor to nats client", "ingress to nats client", "nats to nats cluster",
		"operators to executor http", "runner to nats client",
	}; !slices.Equal(allowed, want) {
		t.Errorf("connections that are allowed: %v, want %v", allowed, want)
	}
}

// admits reports whether the policies admit a connection between pod and peer to the port. Both
// pods are in the same namespace. If direction is Egress, pod opens the connection; if it is
// Ingress, peer does. Only the policies that select pod and apply to this direction count.
func admits(
	t *testing.T,
	policies []*networkingv1.NetworkPolicy,
	direction networkingv1.PolicyType,
	pod, peer corev1.PodTemplateSpec,
	port corev1.ContainerPort,
) bool {
	t.Helper()
	matches := func(selector *metav1.LabelSelector, set map[string]string) bool {
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		return s.Matches(labels.Set(set))
	}
	namespace := map[string]string{"kubernetes.io/metadata.name": "hookstart"}
	isPeer := func(p networkingv1.NetworkPolicyPeer) bool {
		return (p.NamespaceSelector == nil || matches(p.NamespaceSelector, namespace)) &&
			(p.PodSelector == nil || matches(p.PodSelector, peer.Labels))
	}
	isPort := func(p networkingv1.NetworkPolicyPort) bool {
		return (p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP) &&
			(p.Port.StrVal == port.Name || p.Port.IntVal == port.ContainerPort)
	}
	admitted := true
	for _, policy := range policies {
		if !slices.Contains(policy.Spec.PolicyTypes, direction) ||
			!matches(&policy.Spec.PodSelector, pod.Labels) {
			continue
		}
		admitted = false
		// A rule without peers admits all peers, and a rule without ports admits all ports.
		if direction == networkingv1.PolicyTypeIngress {
			for _, rule := range policy.Spec.Ingress {
				if (len(rule.From) == 0 || slices.ContainsFunc(rule.From, isPeer)) &&
					(len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, isPort)) {
					return true
				}
			}
			continue
		}
		for _, rule := range policy.Spec.Egress {
			if (len(rule.To) == 0 || slices.ContainsFunc(rule.To, isPeer)) &&
				(len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, isPort)) {
				return true
			}
		}
	}
	return admitted
}

func hasPort(pod corev1.PodTemplateSpec, name string) bool {
	return slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
		return p.Name == name
	})
}

// checkPod checks that the pod is allowed by the Pod Security Standard "restricted", which the
// namespace enforces, that it has a read-only file system and valid flags, and that probes and
// mounts refer to existing names.
func checkPod(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	security, of := c.SecurityContext, pod.SecurityContext
	switch {
	case of == nil || !*of.RunAsNonRoot ||
		of.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
		t.Errorf("%s may run as root, or without seccomp", name)
	case security == nil || *security.AllowPrivilegeEscalation ||
		!*security.ReadOnlyRootFilesystem || security.Capabilities.Drop[0] != "ALL":
		t.Errorf("%s may gain privileges, or write to its file system", name)
	case *pod.AutomountServiceAccountToken:
		t.Errorf("%s gets a token of the cluster", name)
	}
	env := map[string]string{}
	for _, v := range c.Env {
		env[v.Name] = v.Value
	}
	program := strings.TrimPrefix(c.Image, "hookstart/")
	if program != c.Image {
		if !checkProgram(t, program, c.Args, env) {
			t.Errorf("%s: no such program", c.Image)
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if probe == nil || probe.HTTPGet.Port.StrVal != "ops" {
				t.Errorf("%s: a probe is missing, or asks another port than that for it", name)
			}
		}
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if probe != nil && !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			return p.Name == probe.HTTPGet.Port.StrVal
		}) {
			t.Errorf("%s: a probe asks port %s", name, probe.HTTPGet.Port.StrVal)
		}
	}
	// The probe must use /healthz without options. Only this form of the check reports that a NATS
	// server no longer stores anything after its disk was full.
	if c.LivenessProbe == nil || c.LivenessProbe.HTTPGet.Path != "/healthz" {
		t.Errorf("%s: the liveness probe does not ask /healthz", name)
	}
	// A server that recovers large streams, or an executor that migrates the database, may need an
	// hour to start. Without a startup probe that allows this, Kubernetes would kill and restart it
	// again and again. An ingress starts quickly.
	if probe := c.StartupProbe; name != "ingress" && (probe == nil ||
		time.Duration(probe.PeriodSeconds*probe.FailureThreshold)*time.Second < time.Hour) {
		t.Errorf("%s: the startup probe ends the container within an hour", name)
	}
	for _, mount := range c.VolumeMounts {
		declared := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == mount.Name
		})
		if !declared && mount.Name != "data" { // "data" is declared in volumeClaimTemplates
			t.Errorf("%s mounts %s", name, mount.Name)
		}
	}
}

// kubectl can build the kustomization in deploy/kubernetes, and the results are valid Kubernetes
// objects.
func TestKustomize(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("no kubectl")
	}
	folder := t.TempDir()
	for _, sub := range []string{"nats", "kubernetes"} {
		if err := os.CopyFS(filepath.Join(folder, sub),
			os.DirFS(filepath.Join(deploy, sub))); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(folder, sub, "secrets"), 0o700); err != nil {
			t.Fatal(err)
		}
		// Create the secret files that the kustomization reads, with dummy contents.
		for _, m := range regexp.MustCompile(`secrets/([\w.]+)`).FindAllStringSubmatch(read(t, sub,
			"kustomization.yaml"), -1) {
			if err := os.WriteFile(filepath.Join(folder, sub, "secrets", m[1]),
				[]byte("HOOKSTART_ADMIN_TOKEN=made"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var stderr bytes.Buffer
	cmd := exec.Command(kubectl, "kustomize", filepath.Join(folder, "kubernetes"))
	cmd.Stderr = &stderr
	built, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	made := objects(t, string(built))
	// Each generated object's name ends in a hash of the content, and references must use that
	// name.
	names := map[string]bool{}
	for _, object := range made {
		switch o := object.(type) {
		case *corev1.Secret:
			names[o.Name] = true
		case *corev1.ConfigMap:
			names[o.Name] = true
			// Settings that are not secret must be valid flags of the programs.
			if strings.HasPrefix(o.Name, "hookstart-") {
				checkProgram(t, "ingress", []string{"--ops-addr=:9090"}, o.Data)
				checkProgram(t, "executor", []string{"--ops-addr=:9091"}, o.Data)
			}
		}
	}
	if len(names) != 7 {
		t.Errorf("%d secrets and configurations: %v", len(names), names)
	}
	for _, m := range regexp.MustCompile(`(?m)(?:secretName: |secretRef:\n +name: |configMap:\n(?: +defaultMode: \d+\n)? +name: |configMapRef:\n +name: )(\S+)`).FindAllStringSubmatch(string(built), -1) {
		if !names[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
}
