package dist

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// ImageUID is the user ID that every image runs as. The user has no name, because the images have
// no /etc/passwd.
const ImageUID = 65532

// Image holds the settings that differ between the images of the programs. All images have the CA
// certificates and the user ImageUID in common.
type Image struct {
	// Ports are the ports that the program listens on in a container.
	Ports []string
	// Env holds the environment variables that adapt the program to a container: NAME=value.
	Env []string
	// StoresData reports whether the program stores data in /data, a volume that belongs to the
	// user ImageUID.
	StoresData bool
}

// Images returns the images of a release, keyed by program name. deploy/Dockerfile builds the same
// images.
func Images() map[string]Image {
	return map[string]Image{
		"ingress":   {Ports: []string{"8080/tcp", "9090/tcp"}},
		"executor":  {Ports: []string{"8081/tcp", "9091/tcp"}},
		"hookstart": {},
		"hookstart-local": {
			Ports: []string{"8080/tcp", "8081/tcp", "9090/tcp"}, StoresData: true,
			Env: []string{
				"HOOKSTART_DATA_DIR=/data", "HOOKSTART_INGRESS_ADDR=:8080",
				"HOOKSTART_EXECUTOR_ADDR=:8081", "HOOKSTART_OPS_ADDR=:9090",
			},
		},
	}
}

// The types below define parts of the OCI image specification and of the format of docker save.
type (
	ociDescriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Platform    *ociPlatform      `json:"platform,omitempty"`
	}
	ociPlatform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	imageConfig struct {
		Created      string `json:"created"`
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
		Config       struct {
			User         string
			Env          []string            `json:",omitempty"`
			Entrypoint   []string            `json:",omitempty"`
			ExposedPorts map[string]struct{} `json:",omitempty"`
			Volumes      map[string]struct{} `json:",omitempty"`
			Labels       map[string]string   `json:",omitempty"`
		} `json:"config"`
		RootFS struct {
			Type    string   `json:"type"`
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
		History []map[string]string `json:"history"`
	}
	ociManifest struct {
		SchemaVersion int             `json:"schemaVersion"`
		MediaType     string          `json:"mediaType"`
		Config        ociDescriptor   `json:"config"`
		Layers        []ociDescriptor `json:"layers"`
	}
	ociIndex struct {
		SchemaVersion int             `json:"schemaVersion"`
		MediaType     string          `json:"mediaType"`
		Manifests     []ociDescriptor `json:"manifests"`
	}
	dockerManifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
)

// caCertificates returns, in PEM, the CA certificates that Mozilla trusts without a date limit.
// They come from a Go module and not from the system, so they are the same on every machine.
func caCertificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Writing to a buffer cannot fail.
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}

// buildImages builds an archive of each image for a platform. The archive is an OCI layout, which
// podman, skopeo and Docker 25 or newer can load. It also contains the manifest of docker save for
// older versions of Docker.
func (r *Release) buildImages(p Platform) error {
	for name, about := range Images() {
		binary := filepath.Join(r.BinaryFolders[p], name)
		content, err := r.buildImage(p, name, binary, about)
		if err != nil {
			return fmt.Errorf("the image of %s: %w", name, err)
		}
		// The name ends in .oci.tar. With .tar.gz, the image of the command line could be mistaken
		// for the archive of all programs, such as hookstart_0.1.0_linux_amd64.tar.gz.
		archive := fmt.Sprintf("%s_%s_%s.oci.tar", name, r.VersionNumber(), p)
		if err := r.writeFile(archive, content); err != nil {
			return err
		}
		if err := r.writeSBOM(archive, content, []string{binary}); err != nil {
			return err
		}
	}
	return nil
}

func (r *Release) buildImage(p Platform, name, binary string, about Image) ([]byte, error) {
	program, err := os.ReadFile(binary) //nolint:gosec // made before
	if err != nil {
		return nil, err
	}
	files := []file{
		{"etc/ssl/certs/ca-certificates.crt", 0o644, caCertificates()}, {name, 0o755, program},
	}
	if about.StoresData {
		files = append(files, file{"data/", 0o700, nil})
	}
	var layer bytes.Buffer
	if err := writeTar(tar.NewWriter(&layer), files, "", r.Time, ImageUID); err != nil {
		return nil, err
	}
	blobs := &tree{}
	blob := func(mediaType string, content []byte) ociDescriptor {
		blobs.add("blobs/sha256/"+sha256Hex(content), 0o644, content)
		return ociDescriptor{
			MediaType: mediaType,
			Digest:    "sha256:" + sha256Hex(content),
			Size:      len(content),
		}
	}
	layerBlob := blob("application/vnd.oci.image.layer.v1.tar", layer.Bytes())
	config, err := json.Marshal(r.imageConfig(p, name, about, layerBlob.Digest))
	if err != nil {
		return nil, err
	}
	configBlob := blob("application/vnd.oci.image.config.v1+json", config)
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	inJSON, err := json.Marshal(ociManifest{
		2, manifestType, configBlob,
		[]ociDescriptor{layerBlob},
	})
	if err != nil {
		return nil, err
	}
	tag := "docker.io/hookstart/" + name + ":" + r.VersionNumber()
	manifestBlob := blob(manifestType, inJSON)
	manifestBlob.Platform = &ociPlatform{p.Arch, p.OS}
	manifestBlob.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": tag,
		"io.containerd.image.name":          tag,
	}
	for path, content := range map[string]any{
		"oci-layout": map[string]string{"imageLayoutVersion": "1.0.0"},
		"index.json": ociIndex{
			2, "application/vnd.oci.image.index.v1+json", []ociDescriptor{manifestBlob},
		},
		"manifest.json": []dockerManifest{
			{
				"blobs/sha256/" + sha256Hex(config), []string{tag}, []string{
					"blobs/sha256/" + sha256Hex(layer.Bytes()),
				},
			},
		},
	} {
		inJSON, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		blobs.add(path, 0o644, inJSON)
	}
	var out bytes.Buffer
	if err := writeTar(tar.NewWriter(&out), blobs.sorted(), "", r.Time, 0); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (r *Release) imageConfig(p Platform, name string, about Image, layer string) imageConfig {
	c := imageConfig{Created: r.Time.Format(time.RFC3339), Architecture: p.Arch, OS: p.OS}
	c.Config.User = fmt.Sprintf("%d:%d", ImageUID, ImageUID)
	c.Config.Env = about.Env
	c.Config.Entrypoint = []string{"/" + name}
	c.Config.ExposedPorts = map[string]struct{}{}
	for _, port := range about.Ports {
		c.Config.ExposedPorts[port] = struct{}{}
	}
	if about.StoresData {
		c.Config.Volumes = map[string]struct{}{"/data": {}}
	}
	c.Config.Labels = map[string]string{
		"org.opencontainers.image.title":    name,
		"org.opencontainers.image.version":  r.VersionNumber(),
		"org.opencontainers.image.revision": r.Commit,
		"org.opencontainers.image.created":  r.Time.Format(time.RFC3339),
		"org.opencontainers.image.source":   "https://github.com/hookstart/hookstart",
		// No licence has been chosen yet, which SPDX expresses as NONE.
		"org.opencontainers.image.licenses": "NONE",
	}
	c.RootFS.Type = "layers"
	c.RootFS.DiffIDs = []string{layer}
	c.History = []map[string]string{
		{"created": r.Time.Format(time.RFC3339), "created_by": "make dist"},
	}
	return c
}
