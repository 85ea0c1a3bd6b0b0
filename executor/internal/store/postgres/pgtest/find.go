package pgtest

import (
	"errors"
	"os/exec"
	"path/filepath"
)

// findPrograms returns the folder that contains initdb and postgres. It searches PATH, and then the
// folders in which Debian installs PostgreSQL.
func findPrograms() (folder string, err error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// If initdb is a symbolic link, follow it: postgres may not be next to the link.
		if initdb, err = filepath.EvalSymlinks(initdb); err == nil {
			return filepath.Dir(initdb), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "",
			errors.New("PostgreSQL is not installed (no initdb in PATH or " +
				"/usr/lib/postgresql/*/bin)")
	}
	return filepath.Dir(found[len(found)-1]), nil
}
