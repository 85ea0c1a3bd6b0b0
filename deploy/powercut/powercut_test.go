//go:build linux

package powercut

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hookstart/hookstart/deploy/powercut/internal/disk"
)

// TestMain makes the test binary act as one of the programs of an installation when it is started
// under that program's name.
func TestMain(m *testing.M) {
	if RunAsRole() {
		return
	}
	os.Exit(m.Run())
}

func requireFUSE(t *testing.T) {
	t.Helper()
	if err := disk.CheckMountable(t.TempDir()); err != nil {
		t.Skip(err)
	}
}

// TestPowerCuts is a short version of make powercut. Nothing may be lost if NATS syncs every
// message. The control, with the default sync interval, must lose deliveries, which shows that the
// file system really drops unsynced data.
func TestPowerCuts(t *testing.T) { testPowerCuts(t, 1, 2) }

// TestPowerCutsOfThreeServers is TestPowerCuts with three NATS servers, all of which lose power at
// the same moment, and with a queue that has its own stream.
func TestPowerCutsOfThreeServers(t *testing.T) { testPowerCuts(t, 3, 1) }

func testPowerCuts(t *testing.T, servers, cuts int) {
	t.Helper()
	requireFUSE(t)
	for _, syncAlways := range []bool{true, false} {
		c := Config{
			Servers: servers, Cuts: cuts, CutsPerDisk: cuts, Seed: rand.Uint64(),
			Model: string(disk.ModelOrdered), SkipAwaitingEnds: true, loseAllUnsynced: !syncAlways,
			Verbose: true,
			Out:     t.Output(),
		}
		r, err := c.runMode(t.Context(), t.TempDir(), syncAlways)
		if err != nil {
			t.Fatalf("seed %d: %+v: %v", c.Seed, r, err)
		}
		writeTable(t.Output(), r)
		if err := r.check(!syncAlways); err != nil {
			t.Errorf("seed %d: %v", c.Seed, err)
		}
	}
}

// TestNewFoldersAreDurable checks that the folders and files that hookstart-local creates survive a
// power cut, even on a file system where a new name is durable only after an fsync of its folder.
func TestNewFoldersAreDurable(t *testing.T) {
	requireFUSE(t)
	m, err := newSingleMachine(t.TempDir(), disk.ModelStrict, true, disk.LoseAllUnsynced)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.cutPower(); err != nil {
			t.Error(err)
		}
	})
	// Without a token in its flags, hookstart-local generates one and stores it in a file.
	m.adminToken = ""
	if err := m.startAndAwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	folder := dataFolder(m.mountpoint())
	token, err := os.ReadFile(filepath.Join(folder, "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cutPower(); err != nil {
		t.Fatal(err)
	}
	if m.mount, err = m.disk.Mount(m.mountpoint()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nats", "executions.db"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}
	if after, err := os.ReadFile(filepath.Join(folder, "admin-token")); err != nil ||
		!bytes.Equal(after, token) {
		t.Errorf("the admin token was %q and is %q, %v", token, after, err)
	}
	if err := m.mount.Unmount(); err != nil {
		t.Error(err)
	}
}
