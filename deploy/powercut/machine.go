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

// machine is a computer that runs hookstart-local and nothing else: its power can be cut.
type machine struct {
	folder     string // of this machine, on the real disk
	syncAlways bool
	luck       disk.Luck
	adminToken string // empty: hookstart-local makes one

	disk    *disk.Disk
	mounted *disk.Mounted
	process *process // nil: it is off
}

func newMachine(folder string, model disk.Model, syncAlways bool, luck disk.Luck) (*machine, error) {
	m := &machine{folder: folder, syncAlways: syncAlways, luck: luck, adminToken: adminToken, disk: disk.New(model)}
	return m, os.MkdirAll(m.mountpoint(), 0o700)
}

func (m *machine) mountpoint() string { return filepath.Join(m.folder, "disk") }
func (m *machine) log() string        { return filepath.Join(m.folder, "hookstart-local.log") }

// start turns the machine on. It returns when hookstart-local has begun, and is not ready yet.
func (m *machine) start() (err error) {
	if m.mounted, err = m.disk.Mount(m.mountpoint()); err != nil {
		return err
	}
	if m.process, err = launch(dataFolder(m.mountpoint()), m.log(), m.adminToken, m.syncAlways); err != nil {
		return errors.Join(err, m.mounted.Unmount())
	}
	return nil
}

// cut cuts the power. What the disk has of what was not synced is for luck to say.
func (m *machine) cut() error {
	if m.process == nil {
		return nil
	}
	m.disk.Cut(func() { _ = m.process.Signal(os.Kill) }) // it may go on until its call into the file system has an answer
	<-m.process.Exited()
	m.process = nil
	if err := m.mounted.Unmount(); err != nil {
		return err
	}
	m.disk.Restore(m.luck)
	return nil
}

// boot is start, until hookstart-local is ready. One that ends by itself is an error, with its last words.
func (m *machine) boot(ctx context.Context) error {
	if err := m.start(); err != nil {
		return err
	}
	if err := m.process.awaitReady(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, m.lastWords())
	}
	return nil
}

// lastWords is the end of the log.
func (m *machine) lastWords() string {
	text, err := os.ReadFile(m.log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-1000):])
}
