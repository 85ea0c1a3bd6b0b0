package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// file is a file in an archive or a package. Its mode comes from git or is set in this package, so
// it never depends on the umask.
type file struct {
	path    string
	mode    int64
	content []byte
}

// tree is a set of files, each with its path, mode and content.
type tree struct{ files []file }

func (t *tree) add(name string, mode int64, content []byte) {
	t.files = append(t.files, file{name, mode, content})
}

// sorted returns a copy of the list of files, sorted by path.
func (t *tree) sorted() []file {
	files := slices.Clone(t.files)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return files
}

// fileContent returns the content of a file, or an error if there is no such file.
func (t *tree) fileContent(name string) ([]byte, error) {
	for _, f := range t.files {
		if f.path == name {
			return f.content, nil
		}
	}
	return nil, fmt.Errorf("there is no %s in the checkout", name)
}

// filesUnder returns the files below a folder, sorted by path. Their paths are relative to the
// folder.
func (t *tree) filesUnder(folder string) (below []file) {
	for _, f := range t.sorted() {
		if rest, ok := strings.CutPrefix(f.path, folder+"/"); ok {
			below = append(below, file{rest, f.mode, f.content})
		}
	}
	return below
}

// readShippedFiles reads the tracked files that are shipped to users: the documentation, and the
// files in deploy for each kind of installation.
func (r *Release) readShippedFiles(ctx context.Context) (*tree, error) {
	list, err := r.git(ctx, "ls-files", "-s", "-z", "--", "README.md", "CHANGELOG.md",
		"SECURITY.md", "deploy/README.md", "deploy/RUNBOOK.md",
		"deploy/docs", "deploy/events", "deploy/systemd", "deploy/nats", "deploy/prometheus",
		"deploy/grafana", "deploy/kubernetes", "deploy/compose", "deploy/dist/chart",
		"deploy/dist/packages")
	if err != nil {
		return nil, err
	}
	t := &tree{}
	for entry := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		about, name, ok := strings.Cut(entry, "\t")
		if !ok {
			return nil, fmt.Errorf("git ls-files: %q", entry)
		}
		//nolint:gosec // a file of the checkout
		content, err := os.ReadFile(filepath.Join(r.Root, name))
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if strings.HasPrefix(about, "100755") {
			mode = 0o755
		}
		t.add(name, mode, content)
	}
	return t, nil
}

// repositoryURL is the address of the project's repository.
const repositoryURL = "https://github.com/hookstart/hookstart"

// linkTargetPattern matches the "](" in a Markdown link and the target after it, without a
// fragment.
var linkTargetPattern = regexp.MustCompile(`\]\([^)\s#]+`)

// rewriteLinks returns a document in which the links to files that are not shipped lead to the
// project's repository, at the release's commit. name is the document's path in the checkout, and
// shipped holds the paths of the shipped files and folders.
func (r *Release) rewriteLinks(name string, content []byte, shipped map[string]bool) []byte {
	commit := strings.TrimSuffix(r.Commit, "-dirty")
	return linkTargetPattern.ReplaceAllFunc(content, func(match []byte) []byte {
		link := string(match[len("]("):])
		to := path.Join(path.Dir(name), link)
		about, err := os.Stat(filepath.Join(r.Root, to))
		if strings.Contains(link, ":") || shipped[to] || err != nil {
			return match
		}
		kind := "blob"
		switch {
		case about.IsDir():
			kind = "tree"
		case path.Ext(to) == ".png":
			kind = "raw"
		}
		return []byte("](" + repositoryURL + "/" + kind + "/" + commit + "/" + to)
	})
}

//nolint:gochecknoglobals // constants
var (
	builtImagePattern = regexp.MustCompile(`(?m)^( *)image: (hookstart/\S+)\n *build: .*\n`)
	newTagPattern     = regexp.MustCompile(`(newTag: )\S+(})`)
)

// useReleaseImages makes the compose file and the kustomization use the images of the release
// instead of images that are built from the sources, because the archive has no sources. The user
// must load these images, so the compose file does not pull them: the project has no image
// registry.
func (r *Release) useReleaseImages(name string, content []byte) []byte {
	switch name {
	case "deploy/compose/compose.yaml":
		return builtImagePattern.ReplaceAll(content,
			[]byte("${1}image: ${2}:"+r.VersionNumber()+"\n${1}pull_policy: never\n"))
	case "deploy/kubernetes/kustomization.yaml":
		return newTagPattern.ReplaceAll(content, []byte("${1}"+r.VersionNumber()+"${2}"))
	default:
		return content
	}
}

// pathsWithParents returns, as a set, the paths of the files and of all their parent folders.
func pathsWithParents(files []file) map[string]bool {
	all := map[string]bool{}
	for _, f := range files {
		for name := f.path; name != "." && name != "/"; name = path.Dir(name) {
			all[name] = true
		}
	}
	return all
}

// writeArchive writes the .tar.gz with all files for a platform, and its SBOM. The paths are the
// same as in the checkout, so links between shipped documents work. Links to other files lead to
// the repository.
func (r *Release) writeArchive(p Platform, shipped, generated *tree) error {
	all := &tree{files: slices.Clone(generated.files)}
	for _, f := range shipped.files {
		if !strings.HasPrefix(f.path, "deploy/dist/") {
			all.files = append(all.files, f)
		}
	}
	var binaries []string
	for _, name := range append(slices.Collect(maps.Keys(mainPackages())), "nk") {
		binary := filepath.Join(r.BinaryFolders[p], name)
		content, err := os.ReadFile(binary) //nolint:gosec // made before
		if err != nil {
			return err
		}
		all.add("bin/"+name, 0o755, content)
		binaries = append(binaries, binary)
	}
	inside := pathsWithParents(all.files)
	for i, f := range all.files {
		if path.Ext(f.path) == ".md" {
			all.files[i].content = r.rewriteLinks(f.path, f.content, inside)
			continue
		}
		all.files[i].content = r.useReleaseImages(f.path, f.content)
	}
	name := fmt.Sprintf("hookstart_%s_%s", r.VersionNumber(), p)
	content, err := tarball(all.sorted(), name+"/", r.Time)
	if err != nil {
		return err
	}
	if err := r.writeFile(name+".tar.gz", content); err != nil {
		return err
	}
	return r.writeSBOM(name+".tar.gz", content, binaries)
}

// tarball returns a compressed tar archive of the files, with prefix before their paths. All
// entries belong to root and have the modification time at. Each folder precedes the files in it.
func tarball(files []file, prefix string, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	if err := writeTar(tar.NewWriter(&out), files, prefix, at, 0); err != nil {
		return nil, err
	}
	return gzipBest(out.Bytes())
}

// gzipBest compresses content like gzip -9n, that is, without a file name or a time.
func gzipBest(content []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// writeTar writes the files and their parent folders to w, and closes w. A file whose path ends in
// a slash becomes a folder that belongs to owner, which is both a user ID and a group ID.
// Everything else belongs to root.
func writeTar(w *tar.Writer, files []file, prefix string, at time.Time, owner int) error {
	folders := map[string]bool{".": true, "/": true}
	var folder func(name string) error
	folder = func(name string) error {
		if folders[name] {
			return nil
		}
		folders[name] = true
		if err := folder(path.Dir(name)); err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeDir,
			Name:     name + "/",
			Mode:     0o755,
			ModTime:  at,
			Format:   tar.FormatPAX,
		})
	}
	for _, f := range files {
		name := prefix + f.path
		if strings.HasSuffix(name, "/") {
			if err := folder(path.Dir(path.Clean(name))); err != nil {
				return err
			}
			if err := w.WriteHeader(&tar.Header{
				Typeflag: tar.TypeDir,
				Name:     name,
				Mode:     f.mode,
				Uid:      owner,
				Gid:      owner,
				ModTime:  at,
				Format:   tar.FormatPAX,
			}); err != nil {
				return err
			}
			continue
		}
		if err := folder(path.Dir(name)); err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg,
			Name:     name,
			Mode:     f.mode,
			Size:     int64(len(f.content)),
			ModTime:  at,
			Format:   tar.FormatPAX,
		}); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}
