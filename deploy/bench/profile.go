package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"

	"github.com/google/pprof/profile"
)

// profileEnv is the environment variable with the path of the file for a program's CPU profile.
const profileEnv = "BENCH_CPU_PROFILE"

// startProfile starts a CPU profile of this process if profileEnv is set. stop ends the profile and
// writes the file; it does nothing if no profile was started.
func startProfile() (stop func()) {
	path := os.Getenv(profileEnv)
	if path == "" {
		return func() {}
	}
	file, err := os.Create(path) //nolint:gosec // the one who measures says where
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}
}

// mergedProfile is the name of the file with the sum of all profiles, for go build -pgo.
const mergedProfile = "merged.pgo"

// mergeProfiles merges the profiles in a folder into mergedProfile. The result has the function
// names and lines that the compiler needs, but no paths from this machine.
func mergeProfiles(folder string) (err error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.prof"))
	if err != nil || len(paths) == 0 {
		return err
	}
	var all []*profile.Profile
	for _, path := range paths {
		file, err := os.Open(path) //nolint:gosec // a folder of the user who measures
		if err != nil {
			return err
		}
		parsed, err := profile.Parse(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := parsed.Aggregate(true, true, false, true, false, false); err != nil {
			return err
		}
		for _, mapping := range parsed.Mapping {
			mapping.File, mapping.BuildID = "", ""
		}
		all = append(all, parsed)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return err
	}
	// Remove Sum256 from the profile. Otherwise the compiler would inline this function because it
	// is hot, and the digest that it returns would then be allocated on the heap.
	merged.Prune(regexp.MustCompile(`^crypto/sha256\.Sum256$`), nil)
	file, err := os.Create(filepath.Join(folder, mergedProfile)) //nolint:gosec // as above
	if err != nil {
		return err
	}
	return errors.Join(merged.Write(file), file.Close())
}
