package dist

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The types below define the parts of SPDX 2.3 that the SBOMs use.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name             string          `json:"name"`
		ID               string          `json:"SPDXID"`
		Version          string          `json:"versionInfo"`
		FileName         string          `json:"packageFileName,omitempty"`
		DownloadLocation string          `json:"downloadLocation"`
		FilesAnalyzed    bool            `json:"filesAnalyzed"`
		Checksums        []spdxChecksum  `json:"checksums,omitempty"`
		LicenseConcluded string          `json:"licenseConcluded"`
		LicenseDeclared  string          `json:"licenseDeclared"`
		Copyright        string          `json:"copyrightText"`
		References       []spdxReference `json:"externalRefs,omitempty"`
		Purpose          string          `json:"primaryPackagePurpose,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const spdxNoAssertion = "NOASSERTION"

var invalidIDChars = regexp.MustCompile(`[^A-Za-z0-9.]+`) //nolint:gochecknoglobals // a constant

// writeSBOM writes an SBOM for a file of the release next to that file. The SBOM lists the file,
// the programs in it, Go's standard library, and every module that is linked into a program.
func (r *Release) writeSBOM(name string, content []byte, binaries []string) error {
	document := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace: "https://github.com/hookstart/hookstart/spdx/" + name + "-" + sha256Hex(content),
		Creation: spdxCreation{
			r.Time.Format(time.RFC3339), []string{"Tool: hookstart-dist-" + r.Version},
		},
	}
	whole := spdxPackage{
		Name:             name,
		ID:               "SPDXRef-File",
		Version:          r.Version,
		FileName:         name,
		DownloadLocation: spdxNoAssertion,
		Checksums:        []spdxChecksum{{"SHA256", sha256Hex(content)}},
		LicenseConcluded: spdxNoAssertion,
		LicenseDeclared:  "NONE",
		Copyright:        spdxNoAssertion,
		Purpose:          "ARCHIVE",
	}
	document.Packages = append(document.Packages, whole)
	document.Relationships = append(document.Relationships, spdxRelationship{
		document.ID, "DESCRIBES", whole.ID,
	})
	modules := map[string]spdxPackage{}
	for _, binary := range slices.Sorted(slices.Values(binaries)) {
		program, linked, err := r.programSPDXPackages(binary)
		if err != nil {
			return err
		}
		document.Packages = append(document.Packages, program)
		document.Relationships = append(document.Relationships, spdxRelationship{
			whole.ID, "CONTAINS", program.ID,
		})
		for _, module := range linked {
			modules[module.ID] = module
			document.Relationships = append(document.Relationships, spdxRelationship{
				program.ID, "DEPENDS_ON", module.ID,
			})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		document.Packages = append(document.Packages, modules[id])
	}
	inJSON, err := json.MarshalIndent(document, "", " ")
	if err != nil {
		return err
	}
	return r.writeFile(name+".spdx.json", append(inJSON, '\n'))
}

// programSPDXPackages returns the SPDX package of a program and the packages of the modules that
// are linked into it.
func (r *Release) programSPDXPackages(
	binary string,
) (program spdxPackage, linked []spdxPackage, err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return program, nil, err
	}
	digest, err := sha256OfFile(binary)
	if err != nil {
		return program, nil, err
	}
	name := filepath.Base(binary)
	version, licence := r.Version, "NONE"
	if !isRepositoryPath(info.Path) {
		version, licence = info.Main.Version, spdxNoAssertion
	}
	program = moduleSPDXPackage(info.Path, version)
	program.Name, program.ID, program.Purpose = name,
		"SPDXRef-Program-"+invalidIDChars.ReplaceAllString(name, "-"), "APPLICATION"
	program.Checksums, program.LicenseDeclared = []spdxChecksum{{"SHA256", digest}}, licence
	linked = append(linked, moduleSPDXPackage("stdlib", strings.TrimPrefix(info.GoVersion, "go")))
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		// Go does not know the versions of this repository's modules. They have the version of the
		// release.
		if isRepositoryPath(module.Path) {
			module.Version = r.Version
		}
		linked = append(linked, moduleSPDXPackage(module.Path, module.Version))
	}
	return program, linked, nil
}

func isRepositoryPath(path string) bool {
	return strings.HasPrefix(path, "github.com/hookstart/hookstart/")
}

func moduleSPDXPackage(path, version string) spdxPackage {
	id := invalidIDChars.ReplaceAllString(path+"-"+version, "-")
	return spdxPackage{
		Name:             path,
		ID:               "SPDXRef-Module-" + id,
		Version:          version,
		DownloadLocation: spdxNoAssertion,
		LicenseConcluded: spdxNoAssertion,
		LicenseDeclared:  spdxNoAssertion,
		Copyright:        spdxNoAssertion,
		References: []spdxReference{
			{"PACKAGE-MANAGER", "purl", fmt.Sprintf("pkg:golang/%s@%s", path, version)},
		},
	}
}
