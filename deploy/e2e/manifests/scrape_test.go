package manifests

import (
	"os"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// With kubernetes.yml, Prometheus discovers the pods of the ingress and the executor under the job
// names that the rules expect.
func TestPodsAreScraped(t *testing.T) {
	var config struct {
		Scrapes []struct {
			Relabel []*relabel.Config `yaml:"relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	text, err := os.ReadFile("../../prometheus/kubernetes.yml")
	if err == nil {
		err = yaml.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, object := range objects(t, manifests(t)) {
		var pod corev1.PodTemplateSpec
		switch o := object.(type) {
		case *appsv1.Deployment:
			pod = o.Spec.Template
		case *appsv1.StatefulSet:
			pod = o.Spec.Template
		default:
			continue
		}
		found := labels.NewBuilder(labels.FromStrings(
			model.AddressLabel, "10.0.0.1:8080", model.JobLabel, "hookstart",
			"__meta_kubernetes_pod_name", "pod-1",
			"__meta_kubernetes_pod_annotation_prometheus_io_scrape",
			pod.Annotations["prometheus.io/scrape"],
			"__meta_kubernetes_pod_annotation_prometheus_io_port",
			pod.Annotations["prometheus.io/port"],
			"__meta_kubernetes_pod_label_app_kubernetes_io_name",
			pod.Labels["app.kubernetes.io/name"],
		))
		for _, c := range config.Scrapes[0].Relabel {
			c.NameValidationScheme = model.UTF8Validation
		}
		if relabel.ProcessBuilder(found, config.Scrapes[0].Relabel...) {
			got[found.Get(model.JobLabel)] = found.Get(model.AddressLabel) + " " +
				found.Get(model.InstanceLabel)
		}
	}
	if len(got) != 2 || got["ingress"] != "10.0.0.1:9090 pod-1" ||
		got["executor"] != "10.0.0.1:9091 pod-1" {
		t.Errorf("%v", got)
	}
}
