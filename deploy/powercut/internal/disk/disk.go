//go:build linux

// Package disk is an in-memory file system that can simulate a power cut.
//
// Every change that a program makes (writes, creations, renames, removals) is immediately visible
// to readers, as with a page cache, but durable only after an fsync. A power cut ([Disk.CutPower])
// keeps everything that is durable, and a random part of the rest, because an operating system also
// writes changes to the disk without an fsync. It may have written the pages of a file in any
// order, and a page only in part.
package disk

import (
	"sync"
	"syscall"
	"time"
)

// Model defines which names an fsync makes durable, in addition to the data and the size of the
// synced file.
type Model string

const (
	// ModelOrdered behaves like ext4 and XFS: one journal holds all changes of names, and an fsync
	// of any file or folder makes all of them durable. A new file that was synced therefore keeps
	// its name. The data of a file is durable only if that file was synced.
	ModelOrdered Model = "ordered"
	// ModelStrict guarantees no more than POSIX: only an fsync of a folder makes the names in it
	// durable. A new file that was synced is lost if its folder was not synced.
	ModelStrict Model = "strict"
)

// Disk is one simulated disk. Its methods may be called concurrently.
type Disk struct {
	mu         sync.Mutex
	model      Model
	poweredOff bool
	root       *inode
	// lastInodeNumber is the number of the newest inode; 0 means that there is none.
	lastInodeNumber uint64
	// journal is shared by all folders. It is nil with ModelStrict, where each folder has a
	// separate journal.
	journal *journal
}

// inode is a file or a folder. Its names are not part of it, but are entries in folders.
type inode struct {
	number   uint64
	mode     uint32 // file type and permissions
	links    uint32 // number of names
	modified time.Time

	content fileContent // used only for files

	// entries holds the current names in a folder, and storedEntries the durable ones. Both are nil
	// for a file.
	entries, storedEntries map[string]*inode
	journal                *journal
}

func (i *inode) isFolder() bool { return i.mode&syscall.S_IFMT == syscall.S_IFDIR }

// journal holds the changes to folder entries that are not yet durable, oldest first.
type journal struct{ pending []transaction }

// transaction holds changes that survive a power cut either together or not at all.
type transaction []entryChange

type entryChange struct {
	folder *inode
	name   string
	to     *inode // nil means that the name was removed
}

func (t transaction) makeDurable() {
	for _, c := range t {
		if c.to == nil {
			delete(c.folder.storedEntries, c.name)
		} else {
			c.folder.storedEntries[c.name] = c.to
		}
	}
}

// commit makes the first n transactions durable.
func (j *journal) commit(n int) {
	for _, t := range j.pending[:n] {
		t.makeDurable()
	}
	j.pending = j.pending[n:]
}

// New returns an empty disk. model defines which names an fsync makes durable.
func New(model Model) *Disk {
	d := &Disk{model: model}
	if model == ModelOrdered {
		d.journal = &journal{}
	}
	d.root = d.newInode(syscall.S_IFDIR | 0o755)
	return d
}

// newInode returns a new inode without a name.
func (d *Disk) newInode(mode uint32) *inode {
	d.lastInodeNumber++
	i := &inode{number: d.lastInodeNumber, mode: mode, modified: time.Now()}
	if i.isFolder() {
		i.entries, i.storedEntries, i.journal = map[string]*inode{}, map[string]*inode{}, d.journal
		if d.model == ModelStrict {
			i.journal = &journal{}
		}
	}
	return i
}

// applyChanges applies changes of names to the current entries of folders. The changes become
// durable when their journal is committed.
func (d *Disk) applyChanges(changes ...entryChange) {
	for _, c := range changes {
		if old := c.folder.entries[c.name]; old != nil {
			old.links--
		}
		if c.to == nil {
			delete(c.folder.entries, c.name)
		} else {
			c.folder.entries[c.name] = c.to
			c.to.links++
		}
		c.folder.modified = time.Now()
	}
	// A shared journal gets all changes as one transaction, so a rename from one folder to another
	// is atomic. With ModelStrict, each folder's journal gets only the changes in that folder, so a
	// power cut may keep one half of such a rename.
	for len(changes) > 0 {
		j := changes[0].folder.journal
		var t transaction
		var others []entryChange
		for _, c := range changes {
			if c.folder.journal == j {
				t = append(t, c)
			} else {
				others = append(others, c)
			}
		}
		j.pending, changes = append(j.pending, t), others
	}
}

// sync implements fsync of a file or a folder.
func (d *Disk) sync(i *inode) {
	if !i.isFolder() {
		i.content.sync()
	}
	switch {
	case d.journal != nil:
		d.journal.commit(len(d.journal.pending))
	case i.isFolder():
		i.journal.commit(len(i.journal.pending))
	}
}

// CutPower cuts the power and calls killAll, which must kill the programs that use the disk. Their
// calls into the file system wait until killAll has returned, and then fail. The caller must then
// unmount the disk, and call PowerOn before it mounts the disk again.
func (d *Disk) CutPower(killAll func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	killAll()
	d.poweredOff = true
}

// Randomness decides which unsynced data survives a power cut. A *rand.Rand implements it.
type Randomness interface {
	// IntN returns a number from 0 to n-1.
	IntN(n int) int
}

// LoseAllUnsynced is a Randomness with which only synced data survives: its IntN always returns 0.
var LoseAllUnsynced Randomness = zeroRandomness{}

type zeroRandomness struct{}

func (zeroRandomness) IntN(int) int { return 0 }

// PowerOn turns the power on again after CutPower. The disk then holds the durable data and a part
// of the other data; luck decides which part.
func (d *Disk) PowerOn(luck Randomness) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.poweredOff = false
	if d.journal != nil {
		d.journal.commit(luck.IntN(len(d.journal.pending) + 1))
		d.journal.pending = nil
	}
	// A file may have several names, but must be restored only once.
	done := map[*inode]bool{}
	var restore func(i *inode)
	restore = func(i *inode) {
		i.links++
		if done[i] {
			return
		}
		done[i] = true
		i.links = 1
		if !i.isFolder() {
			i.content.applyPowerCut(luck)
			return
		}
		i.journal.commit(luck.IntN(len(i.journal.pending) + 1))
		i.journal.pending = nil
		i.entries = map[string]*inode{}
		for _, name := range sortedNames(i.storedEntries) {
			i.entries[name] = i.storedEntries[name]
			restore(i.storedEntries[name])
		}
	}
	restore(d.root)
}
