package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

const immediateShutdown = syscall.SIGQUIT

// runAsServerUser makes command run as the server's user. It also makes the kernel stop the command
// when this process exits, even if this process is killed.
func runAsServerUser(command *exec.Cmd) error {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: immediateShutdown}
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := serverUser()
	if err != nil {
		return err
	}
	command.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	return nil
}

// chownToServerUser makes the server's user the owner of a file or folder.
func chownToServerUser(folder string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := serverUser()
	if err != nil {
		return err
	}
	return os.Chown(folder, int(uid), int(gid))
}

// serverUser returns the IDs of the user that runs the server if the tests run as root: postgres
// or, if there is no such user, nobody. PostgreSQL refuses to run as root.
func serverUser() (uid, gid uint32, err error) {
	account, err := user.Lookup("postgres")
	if err != nil {
		if account, err = user.Lookup("nobody"); err != nil {
			return 0, 0,
				fmt.Errorf("pgtest: PostgreSQL does not run as root, and there is no user "+
					"postgres or nobody: %w", err)
		}
	}
	u, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	g, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	return uint32(u), uint32(g), nil
}
