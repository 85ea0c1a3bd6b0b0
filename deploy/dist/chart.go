package dist

import (
	"fmt"
	"regexp"
)

//nolint:gochecknoglobals // a constant
var chartVersionPattern = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// packChart packages the Helm chart with the version of the release. It does the same as helm
// package, but sets all modification times to the time of the commit, so that the archive is
// reproducible.
func (r *Release) packChart(shipped *tree) error {
	files := shipped.filesUnder("deploy/dist/chart/hookstart")
	if len(files) == 0 {
		return fmt.Errorf("there is no chart in %s", r.Root)
	}
	for i, f := range files {
		if f.path == "Chart.yaml" {
			files[i].content = chartVersionPattern.ReplaceAll(f.content,
				[]byte("$1: "+r.VersionNumber()))
		}
	}
	// The templates of the chart read and modify the manifests of the kustomization, so the chart
	// must contain these manifests. It also contains those of the NATS servers.
	for _, name := range chartFilePaths() {
		content, err := shipped.fileContent("deploy/" + name)
		if err != nil {
			return err
		}
		files = append(files, file{"manifests/" + name, 0o644, content})
	}
	content, err := tarball(files, "hookstart/", r.Time)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("hookstart-chart_%s.tgz", r.VersionNumber())
	if err := r.writeFile(name, content); err != nil {
		return err
	}
	return r.writeSBOM(name, content, nil)
}

// chartFilePaths returns the paths of the files in deploy that the chart includes.
func chartFilePaths() []string {
	return []string{
		"kubernetes/executor.yaml", "kubernetes/ingress.yaml", "kubernetes/network.yaml",
		"nats/accounts.conf", "nats/cluster.conf", "nats/first-site.conf",
		"nats/kubernetes.yaml", "nats/node.conf", "nats/runner.conf", "nats/runners.conf",
		"prometheus/rules.yml",
	}
}
