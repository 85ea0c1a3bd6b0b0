//go:build linux

package powercut

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/hookstart/hookstart/deploy/powercut/internal/disk"
	"github.com/hookstart/hookstart/shared/child"
)

// machine is a simulated computer with one disk and the programs that run on it. Its power can be
// cut at any moment.
type machine struct {
	folder   string          // on the real disk; holds the mount point
	random   disk.Randomness // decides which unsynced data survives a power cut
	programs []startProgramFunc

	disk      *disk.Disk
	mount     *disk.Mount
	processes []*child.Process // nil while the machine is off
}

// startProgramFunc starts a program of a machine. mounted is the folder on which the machine's disk
// is mounted, and in which the program stores its data.
type startProgramFunc func(mounted string) (*child.Process, error)

func newMachine(
	folder string, model disk.Model, random disk.Randomness, programs ...startProgramFunc,
) (*machine, error) {
	m := &machine{folder: folder, random: random, programs: programs, disk: disk.New(model)}
	return m, os.MkdirAll(m.mountpoint(), 0o700)
}

func (m *machine) mountpoint() string { return filepath.Join(m.folder, "disk") }

// start turns the machine on. It returns when the processes are running, but not necessarily ready.
func (m *machine) start() (err error) {
	if m.mount, err = m.disk.Mount(m.mountpoint()); err != nil {
		return err
	}
	for _, start := range m.programs {
		p, err := start(m.mountpoint())
		if err != nil {
			for _, p := range m.processes {
				p.Kill()
			}
			m.processes = nil
			return errors.Join(err, m.mount.Unmount())
		}
		m.processes = append(m.processes, p)
	}
	return nil
}

// cutPower cuts the power: it kills the programs and unmounts the disk. The disk keeps everything
// that was synced, and a random part of the rest. If the machine is off, cutPower does nothing.
func (m *machine) cutPower() error { return cutPowerOfAll([]*machine{m}) }

// cutPowerOfAll cuts the power of several machines at the same moment. Machines that are off stay
// off.
func cutPowerOfAll(machines []*machine) error {
	var on []*machine
	for _, m := range machines {
		if m.processes != nil {
			on = append(on, m)
		}
	}
	cutDisksTogether(on, func() {
		for _, m := range on {
			for _, p := range m.processes {
				_ = p.Signal(os.Kill)
			}
		}
	})
	var errs []error
	for _, m := range on {
		// Wait until the killed processes have exited, because the disk cannot be unmounted before.
		// A process exits only when its pending call into the file system has returned.
		for _, p := range m.processes {
			<-p.Exited()
		}
		m.processes = nil
		if err := m.mount.Unmount(); err != nil {
			errs = append(errs, err)
			continue
		}
		m.disk.PowerOn(m.random)
	}
	return errors.Join(errs...)
}

// cutDisksTogether cuts the power of the machines' disks at the same moment: it holds the locks of
// all disks while it calls killAll, so that no program can change a disk after another disk has
// lost power.
func cutDisksTogether(machines []*machine, killAll func()) {
	if len(machines) == 0 {
		killAll()
		return
	}
	machines[0].disk.CutPower(func() { cutDisksTogether(machines[1:], killAll) })
}

// fileTail returns the last 1,000 bytes of a log file.
func fileTail(path string) string {
	text, err := os.ReadFile(path) //nolint:gosec // the caller's own
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-1000):])
}
