package dist_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/deploy/dist"
)

// deploy/Dockerfile, for people who build from source, builds the same images as a release.
func TestDockerfileMakesTheSameImages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for name, image := range dist.Images() {
		stage := regexp.MustCompile(`(?s)FROM base AS ` + name +
			`\n(.*?)(\n\n|$)`).FindStringSubmatch(string(text))
		if stage == nil {
			t.Errorf("no stage %s", name)
			continue
		}
		var ports, env []string
		if m := regexp.MustCompile(`EXPOSE (.*)`).FindStringSubmatch(stage[1]); m != nil {
			for port := range strings.FieldsSeq(m[1]) {
				ports = append(ports, port+"/tcp")
			}
		}
		if m := regexp.MustCompile(`ENV (.*)`).FindStringSubmatch(stage[1]); m != nil {
			env = strings.Fields(m[1])
		}
		if !slices.Equal(ports, image.Ports) || !slices.Equal(env, image.Env) ||
			strings.Contains(stage[1], "VOLUME /data") != image.StoresData ||
			!strings.Contains(stage[1], `ENTRYPOINT ["/`+name+`"]`) {
			t.Errorf("%s: %+v, but the Dockerfile has\n%s", name, image, stage[1])
		}
	}
}
