//go:build linux

package powercut

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hookstart/hookstart/deploy/powercut/internal/disk"
)

// machine is a simulated computer that runs only hookstart-local. Its power can be cut.
type machine struct {
	folder     string // on the real disk; holds the mount point and the log
	syncAlways bool
	luck       disk.Randomness
	adminToken string // "" makes hookstart-local generate one

	disk    *disk.Disk
	mounted *disk.Mounted
	process *process // nil while the machine is off
}

func newMachine(
	folder string, model disk.Model, syncAlways bool, luck disk.Randomness,
) (*machine, error) {
	m := &machine{
		folder: folder, syncAlways: syncAlways, luck: luck, adminToken: adminToken,
		disk: disk.New(model),
	}
	return m, os.MkdirAll(m.mountpoint(), 0o700)
}

func (m *machine) mountpoint() string { return filepath.Join(m.folder, "disk") }
func (m *machine) logPath() string    { return filepath.Join(m.folder, "hookstart-local.log") }

// start turns the machine on. It returns once the process of hookstart-local is running, which is
// before hookstart-local is ready.
func (m *machine) start() (err error) {
	if m.mounted, err = m.disk.Mount(m.mountpoint()); err != nil {
		return err
	}
	if m.process, err = startProgram(dataFolder(m.mountpoint()), m.logPath(), m.adminToken,
		m.syncAlways); err != nil {
		return errors.Join(err, m.mounted.Unmount())
	}
	return nil
}

// cut cuts the power. The disk keeps everything that was synced, and a part of the rest that luck
// decides. Nothing happens if the machine is off.
func (m *machine) cut() error {
	if m.process == nil {
		return nil
	}
	// The killed process exits only once its pending call into the file system returns.
	m.disk.CutPower(func() { _ = m.process.Signal(os.Kill) })
	<-m.process.Exited()
	m.process = nil
	if err := m.mounted.Unmount(); err != nil {
		return err
	}
	m.disk.PowerOn(m.luck)
	return nil
}

// boot turns the machine on and waits until hookstart-local is ready. If the process exits instead,
// the error includes the end of its log.
func (m *machine) boot(ctx context.Context) error {
	if err := m.start(); err != nil {
		return err
	}
	if err := m.process.awaitReady(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, m.endOfLog())
	}
	return nil
}

// endOfLog returns the last 1,000 bytes of hookstart-local's log.
func (m *machine) endOfLog() string {
	text, err := os.ReadFile(m.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-1000):])
}
