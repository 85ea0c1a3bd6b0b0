package pgtest

import (
	"errors"
	"os/exec"
	"path/filepath"
)

// find returns the folder of initdb and postgres: in PATH, or where Debian installs them.
func find() (folder string, err error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// If initdb is a wrapper's link, postgres may not be next to it.
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
