package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func (s *Server) baseBackupFolder() string { return filepath.Join(s.folder, "copy") }

// BaseBackup copies the current state of the server to a folder, for RestoreBaseBackup. It replaces
// an earlier copy.
func (s *Server) BaseBackup(ctx context.Context) error {
	if err := os.RemoveAll(s.baseBackupFolder()); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, filepath.Join(s.programsFolder, "pg_basebackup"), "--host",
		s.folder, "--port=5432", "--username=postgres",
		// #nosec G204 -- the program is PostgreSQL's own, and no argument comes from a user.
		"--pgdata", s.baseBackupFolder(), "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	command.Dir = s.folder
	if err := runAsServerUser(command); err != nil {
		return err
	}
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: pg_basebackup: %w\n%s", err, output)
	}
	return nil
}

// RestoreBaseBackup kills the server and restarts it from the copy that BaseBackup made. Everything
// written since BaseBackup is lost. If promoted is true, the copy starts as a standby and is then
// promoted, which begins a new timeline. Otherwise, it starts as a primary. A copy can be used only
// once.
func (s *Server) RestoreBaseBackup(ctx context.Context, promoted bool) error {
	old := s.dataFolder() + "-old"
	err := errors.Join(s.stopWithSignal(os.Kill), os.Rename(s.dataFolder(), old),
		os.Rename(s.baseBackupFolder(), s.dataFolder()))
	if err != nil {
		return err
	}
	// Delete the old folder at the end, and ignore an error: some processes of the killed server
	// may still be writing to the folder.
	defer func() { _ = os.RemoveAll(old) }()
	if !promoted {
		return s.Restart(ctx)
	}
	signal := filepath.Join(s.dataFolder(), "standby.signal")
	if err := errors.Join(os.WriteFile(signal, nil, 0o600), chownToServerUser(signal),
		s.Restart(ctx)); err != nil {
		return err
	}
	return s.promote(ctx)
}
