package dist

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Package describes a Linux package. Each package is built for both Debian and Fedora.
type Package struct {
	// Summary is a one-line description; Description is the text below it.
	Summary, Description string
	// Programs are the programs that the package installs in /usr/bin, together with their manual
	// pages.
	Programs []string
	// Units are the systemd units that the package installs, from deploy/systemd.
	Units []string
	// ConfigFiles are the names of configuration files that the package installs in /etc/hookstart,
	// from the files NAME.example in deploy/systemd. They may hold secrets.
	ConfigFiles []string
	// IncludesNATSConfig reports whether the package includes the NATS configuration, in
	// /etc/hookstart/nats, and the scripts that generate keys.
	IncludesNATSConfig bool
	// StateFolders holds the names of the folders in /var/lib in which the units store their data.
	// They are deleted when the package is purged.
	StateFolders []string
	// Recommends and Suggests are the names of the packages that this package recommends or
	// suggests.
	Recommends, Suggests []string
}

// Packages returns the packages of a release, keyed by name.
func Packages() map[string]Package {
	return map[string]Package{
		"hookstart": {
			Summary: "command line of hookstart, for operators and runners",
			Description: "It manages workflows and their webhooks, shows executions, backs up " +
				"and\nrestores an installation, and runs a program for each execution of a queue.",
			Programs: []string{"hookstart"},
			Units:    []string{"hookstart-run@.service"},
		},
		"hookstart-server": {
			Summary: "webhook trigger service: ingress and executor",
			Description: "A POST to a URL with a workflow's ID and a secret token starts exactly " +
				"one\nexecution of that workflow. The ingress is the webhook endpoint; the " +
				"executor\nrecords executions and serves the operators' API and the console. " +
				"They need a\nNATS server of version 2.15 or newer.",
			Programs: []string{"ingress", "executor"},
			Units: []string{
				"hookstart-ingress.service", "hookstart-executor.service", "hookstart-nats.service",
			},
			ConfigFiles:        []string{"ingress.env", "executor.env", "nats.env"},
			IncludesNATSConfig: true,
			StateFolders:       []string{"hookstart-executor", "hookstart-nats"},
			Recommends:         []string{"hookstart", "openssl"},
		},
		"hookstart-local": {
			Summary: "webhook trigger service in one process",
			Description: "A POST to a URL with a workflow's ID and a secret token starts exactly " +
				"one\nexecution of that workflow. This is all of hookstart in one process, for " +
				"one\nmachine, on an embedded NATS server and SQLite.",
			Programs:     []string{"hookstart-local"},
			Units:        []string{"hookstart-local.service"},
			ConfigFiles:  []string{"local.env"},
			StateFolders: []string{"hookstart"},
			Recommends:   []string{"hookstart"},
		},
	}
}

// maintainer is the name and email address that the packages state as their maintainer.
const maintainer = "hookstart <hookstart@users.noreply.github.com>"

// nfpmContent is one entry in the contents section of an nfpm configuration.
type nfpmContent struct {
	Source      string       `json:"src"`
	Destination string       `json:"dst"`
	Type        string       `json:"type,omitempty"`
	Packager    string       `json:"packager,omitempty"`
	Info        nfpmFileInfo `json:"file_info"`
}

type nfpmFileInfo struct {
	Owner string    `json:"owner"`
	Group string    `json:"group"`
	Mode  int64     `json:"mode"`
	MTime time.Time `json:"mtime"`
}

// stagedPackage is a package whose contents are collected in a folder, from which nfpm then builds
// the package.
type stagedPackage struct {
	folder   string
	modTime  time.Time
	contents []nfpmContent
	err      error
}

func (s *stagedPackage) stageFile(name string, data []byte) string {
	path := filepath.Join(s.folder, fmt.Sprintf("%03d-%s", len(s.contents), filepath.Base(name)))
	//nolint:gosec // a path of the release's own
	if err := os.WriteFile(path, data, 0o600); err != nil && s.err == nil {
		s.err = err
	}
	return path
}

// addFile adds a file to the package. kind is the file's type in nfpm's configuration: "" for an
// ordinary file, or "config|noreplace" for a file that upgrades keep. packager restricts the file
// to one format of packages, deb or rpm; "" means both.
func (s *stagedPackage) addFile(
	destination string, mode int64, kind, packager string, data []byte,
) {
	s.contents = append(s.contents, nfpmContent{
		s.stageFile(destination, data), destination, kind, packager, nfpmFileInfo{
			"root", "root", mode, s.modTime,
		},
	})
}

// buildPackages builds all packages for a platform.
func (r *Release) buildPackages(ctx context.Context, p Platform, shipped, generated *tree) error {
	for _, name := range slices.Sorted(maps.Keys(Packages())) {
		if err := r.buildPackage(ctx, p, name, Packages()[name], shipped, generated); err != nil {
			return fmt.Errorf("the package %s: %w", name, err)
		}
	}
	return nil
}

func (r *Release) buildPackage(
	ctx context.Context, p Platform, name string, about Package, shipped, generated *tree,
) error {
	folder, err := os.MkdirTemp("", "hookstart-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	s := &stagedPackage{folder: folder, modTime: r.Time}
	binaries, err := r.addFiles(s, p, name, about, shipped, generated)
	if err != nil {
		return err
	}
	scripts, err := stageScripts(s, name, about, shipped)
	if err != nil {
		return err
	}
	s.contents = slices.DeleteFunc(s.contents,
		func(c nfpmContent) bool { return c.Destination == "" })
	if s.err != nil {
		return s.err
	}
	config := map[string]any{
		"name":             name,
		"arch":             p.Arch,
		"platform":         "linux",
		"version":          r.Version,
		"mtime":            r.Time,
		"disable_globbing": true,
		"section":          "net",
		"priority":         "optional",
		"homepage":         repositoryURL,
		"maintainer":       maintainer,
		"description":      about.Summary + "\n" + about.Description,
		"recommends":       about.Recommends,
		"suggests":         about.Suggests,
		"contents":         s.contents,
		"scripts":          scripts,
		"rpm":              map[string]any{"buildhost": "hookstart", "summary": about.Summary},
		"deb":              map[string]any{"compression": "xz"},
	}
	nfpm, err := filepath.Abs(r.NFPM)
	if err != nil {
		return err
	}
	for _, packager := range []string{"deb", "rpm"} {
		if packager == "rpm" {
			config["license"] = "NONE" // Debian packages have a copyright file instead
		}
		inJSON, err := json.Marshal(config) // nfpm reads YAML, and JSON is valid YAML
		if err != nil {
			return err
		}
		configFile := filepath.Join(folder, packager+".yaml")
		if err := os.WriteFile(configFile, inJSON, 0o600); err != nil {
			return err
		}
		file := fmt.Sprintf("%s_%s_%s.%s", name, r.VersionNumber(), p, packager)
		target := filepath.Join(folder, file)
		env := append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.Time.Unix()))
		if _, err := runProgram(ctx, folder, env, nfpm, "package", "--config", configFile,
			"--packager", packager, "--target", target); err != nil {
			return err
		}
		content, err := os.ReadFile(target) //nolint:gosec // made just now
		if err != nil {
			return err
		}
		if err := r.writeFile(file, content); err != nil {
			return err
		}
		if err := r.writeSBOM(file, content, binaries); err != nil {
			return err
		}
	}
	return nil
}

// stageScripts writes the scripts that a package manager runs, and returns their paths, keyed by
// when they run: postinstall, preremove and postremove.
func stageScripts(
	s *stagedPackage, name string, about Package, shipped *tree,
) (map[string]string, error) {
	scripts := map[string]string{}
	for _, when := range []string{"postinstall", "preremove", "postremove"} {
		text, err := shipped.fileContent("deploy/dist/packages/" + when + ".sh")
		if err != nil {
			return nil, err
		}
		filled := strings.NewReplacer("@PACKAGE@", name,
			"@UNITS@", strings.Join(about.Units, " "),
			"@PATTERNS@", strings.Join(unitPatterns(about.Units), " "),
			"@STATE@", strings.Join(about.StateFolders, " ")).Replace(string(text))
		scripts[when] = s.stageFile(when, []byte(filled))
		// stageFile begins a file's name with the number of entries so far. A script has no entry,
		// so add an empty one; otherwise the next file would get the same number.
		s.contents = append(s.contents, nfpmContent{})
	}
	return scripts, nil
}

// unitPatterns returns a pattern for systemctl for each unit, quoted for a shell. The pattern of a
// template unit, such as name@.service, matches all its loaded instances.
func unitPatterns(units []string) (quoted []string) {
	for _, unit := range units {
		quoted = append(quoted, "'"+strings.Replace(unit, "@", "@*", 1)+"'")
	}
	return quoted
}

// addFiles adds all files of a package to s, and returns the paths of the compiled programs among
// them.
func (r *Release) addFiles(
	s *stagedPackage, p Platform, name string, about Package, shipped, generated *tree,
) (binaries []string, err error) {
	doc := "/usr/share/doc/" + name + "/"
	for _, program := range about.Programs {
		binary := filepath.Join(r.BinaryFolders[p], program)
		data, err := os.ReadFile(binary) //nolint:gosec // made before
		if err != nil {
			return nil, err
		}
		binaries = append(binaries, binary)
		s.addFile("/usr/bin/"+program, 0o755, "", "", data)
		page, err := generated.fileContent(manualPath(program))
		if err != nil {
			return nil, err
		}
		if page, err = gzipBest(page); err != nil {
			return nil, err
		}
		s.addFile("/usr/share/"+manualPath(program)+".gz", 0o644, "", "", page)
	}
	get := func(path string) []byte {
		data, err := shipped.fileContent(path)
		if err != nil && s.err == nil {
			s.err = err
		}
		return data
	}
	for _, unit := range about.Units {
		s.addFile("/usr/lib/systemd/system/"+unit, 0o644, "", "", get("deploy/systemd/"+unit))
	}
	for _, kind := range []string{"sysusers.d", "tmpfiles.d"} {
		for _, f := range shipped.filesUnder("deploy/systemd/" + kind) {
			if f.path == name+".conf" {
				s.addFile("/usr/lib/"+kind+"/"+f.path, 0o644, "", "", f.content)
			}
		}
	}
	for _, file := range about.ConfigFiles {
		s.addFile("/etc/hookstart/"+file, 0o600, "config|noreplace", "",
			get("deploy/systemd/"+file+".example"))
	}
	if about.IncludesNATSConfig {
		binary := filepath.Join(r.BinaryFolders[p], "nk")
		data, err := os.ReadFile(binary) //nolint:gosec // made before
		if err != nil {
			return nil, err
		}
		binaries = append(binaries, binary)
		s.addFile("/usr/libexec/hookstart/nk", 0o755, "", "", data)
		for _, f := range shipped.filesUnder("deploy/nats") {
			switch filepath.Ext(f.path) {
			case ".conf":
				s.addFile("/etc/hookstart/nats/"+f.path, 0o644, "config|noreplace", "", f.content)
			case ".sh":
				s.addFile("/usr/share/hookstart/nats/"+f.path, 0o755, "", "", f.content)
			}
		}
	}
	// Every package has the changelog. Only the command line's package has the other documents.
	documents := shipped.sorted()
	documents = slices.DeleteFunc(documents, func(f file) bool {
		return f.path != "CHANGELOG.md" && (name != "hookstart" || filepath.Ext(f.path) != ".md")
	})
	inside := pathsWithParents(documents)
	for _, f := range documents {
		s.addFile(doc+f.path, 0o644, "", "", r.rewriteLinks(f.path, f.content, inside))
	}
	if name == "hookstart" {
		r.addCompletions(s, generated)
	}
	s.addFile(doc+"copyright", 0o644, "", "", get("deploy/dist/packages/copyright"))
	log, err := gzipBest([]byte(r.debianChangelog(name)))
	if err != nil {
		return nil, err
	}
	s.addFile(doc+"changelog.gz", 0o644, "", "deb", log)
	s.addFile("/usr/share/lintian/overrides/"+name, 0o644, "", "deb",
		get("deploy/dist/packages/lintian-overrides"))
	return binaries, s.err
}

// debianChangelog returns a changelog in the format that Debian requires. Its only entry refers to
// CHANGELOG.md.
func (r *Release) debianChangelog(name string) string {
	return fmt.Sprintf("%[1]s (%[2]s) unstable; urgency=medium\n\n  * Changes: "+
		"/usr/share/doc/%[1]s/CHANGELOG.md.\n\n -- %[3]s  %[4]s\n",
		name, strings.Replace(r.VersionNumber(), "-", "~",
			1), maintainer, r.Time.Format(time.RFC1123Z))
}

// addCompletions adds the shell completions to the folders where each distribution expects them.
func (r *Release) addCompletions(s *stagedPackage, generated *tree) {
	for _, to := range []struct{ script, path, packager string }{
		{"hookstart.bash", "/usr/share/bash-completion/completions/hookstart", ""},
		{"hookstart.fish", "/usr/share/fish/vendor_completions.d/hookstart.fish", ""},
		{"_hookstart", "/usr/share/zsh/vendor-completions/_hookstart", "deb"},
		{"_hookstart", "/usr/share/zsh/site-functions/_hookstart", "rpm"},
	} {
		script, err := generated.fileContent("completions/" + to.script)
		if err != nil {
			s.err = err
			return
		}
		s.addFile(to.path, 0o644, "", to.packager, script)
	}
}
