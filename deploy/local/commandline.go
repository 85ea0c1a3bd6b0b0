package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// hookstartCommand returns the command with which a user runs the hookstart command line in the
// current folder.
func hookstartCommand() string {
	executable, err := os.Executable()
	folder, err2 := os.Getwd()
	if err != nil || err2 != nil {
		return hookstartProgramName
	}
	return hookstartShellCommand(executable, folder)
}

const hookstartProgramName = "hookstart"

// hookstartShellCommand returns the command with which a user runs the program hookstart that is
// in the same folder as executable, if it is entered in currentFolder. The command is that
// program's path, quoted for a shell if necessary, or just the name hookstart if the PATH leads to
// the same program. It is also just the name if there is no hookstart in that folder, as in the
// container image.
func hookstartShellCommand(executable, currentFolder string) string {
	path := filepath.Join(filepath.Dir(executable), hookstartProgramName)
	beside, err := os.Stat(path)
	if err != nil || beside.IsDir() {
		return hookstartProgramName
	}
	if found, err := exec.LookPath(hookstartProgramName); err == nil {
		if onPath, err := os.Stat(found); err == nil && os.SameFile(beside, onPath) {
			return hookstartProgramName
		}
	}
	relative, err := filepath.Rel(currentFolder, path)
	if err == nil && filepath.IsLocal(relative) {
		if path = relative; path == hookstartProgramName {
			path = "./" + path
		}
	}
	if regexp.MustCompile(`[^\w./+@:,-]`).MatchString(path) {
		path = "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
