//go:build linux

// Package disk is a file system in memory that knows what a power cut would leave of it.
//
// Whatever a program writes, names, renames or removes is there at once for every reader, as with a page cache, but durable only
// after fsync. After [Disk.Cut] there is what is durable, and a random part of the rest, which a disk may have written by itself:
// pages of a file in any order, the last of them perhaps in part.
package disk

import (
	"sync"
	"syscall"
	"time"
)

// Model says what fsync makes durable, besides the data and the size of a file.
type Model string

const (
	// Ordered is what ext4 and XFS do: all changes of names are in one journal, which the fsync of any file or folder writes.
	// So a synced new file has its name, too. Data is durable only in the files that were synced.
	Ordered Model = "ordered"
	// Strict is the least that POSIX promises: only the fsync of a folder makes its names durable. A synced file in a folder
	// that was not synced is lost.
	Strict Model = "strict"
)

// Disk is one disk. Its methods may be called concurrently.
type Disk struct {
	mu    sync.Mutex
	model Model
	off   bool
	root  *inode
	// last is the highest inode number that was given out.
	last uint64
	// journal is that of all folders; nil in the model Strict, where each has its own.
	journal *journal
}

// inode is a file or a folder.
type inode struct {
	number   uint64
	mode     uint32 // type and permissions
	links    uint32 // number of names
	modified time.Time

	content content // of a file

	entries, stored map[string]*inode // of a folder: now, and what is durable
	journal         *journal
}

func (i *inode) isFolder() bool { return i.mode&syscall.S_IFMT == syscall.S_IFDIR }

// journal holds the changes of names that are not durable, in their order.
type journal struct{ pending []transaction }

// transaction is what survives as a whole or not at all.
type transaction []change

type change struct {
	folder *inode
	name   string
	to     *inode // nil: removed
}

func (t transaction) apply() {
	for _, c := range t {
		if c.to == nil {
			delete(c.folder.stored, c.name)
		} else {
			c.folder.stored[c.name] = c.to
		}
	}
}

// commit makes the first n changes durable.
func (j *journal) commit(n int) {
	for _, t := range j.pending[:n] {
		t.apply()
	}
	j.pending = j.pending[n:]
}

// New is an empty disk.
func New(model Model) *Disk {
	d := &Disk{model: model}
	if model == Ordered {
		d.journal = &journal{}
	}
	d.root = d.newInode(syscall.S_IFDIR | 0o755)
	return d
}

// newInode makes an inode without a name.
func (d *Disk) newInode(mode uint32) *inode {
	d.last++
	i := &inode{number: d.last, mode: mode, modified: time.Now()}
	if i.isFolder() {
		i.entries, i.stored, i.journal = map[string]*inode{}, map[string]*inode{}, d.journal
		if d.model == Strict {
			i.journal = &journal{}
		}
	}
	return i
}

// change changes names, now; they are durable when the journal is.
func (d *Disk) change(changes ...change) {
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
	// In one journal it is one transaction; each folder's own journal has its part.
	for len(changes) > 0 {
		j := changes[0].folder.journal
		var t transaction
		var others []change
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

// sync is fsync.
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

// Cut cuts the power while killAll kills the programs that use the disk: their calls are answered only when it has returned, with
// an error. Then the disk has to be unmounted; Restore makes it what a boot after the cut finds.
func (d *Disk) Cut(killAll func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	killAll()
	d.off = true
}

// Luck says what survives of what was not synced. A *rand.Rand is one.
type Luck interface {
	// IntN is a number from 0 to n-1.
	IntN(n int) int
}

// Worst is the luck with which nothing survives but what was synced.
var Worst Luck = worst{}

type worst struct{}

func (worst) IntN(int) int { return 0 }

// Restore turns the power on again: what was durable is there, and what else luck has left.
func (d *Disk) Restore(luck Luck) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = false
	if d.journal != nil {
		d.journal.commit(luck.IntN(len(d.journal.pending) + 1))
		d.journal.pending = nil
	}
	// Once for each: a file may have several names.
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
			i.content.restore(luck)
			return
		}
		i.journal.commit(luck.IntN(len(i.journal.pending) + 1))
		i.journal.pending = nil
		i.entries = map[string]*inode{}
		for _, name := range sortedNames(i.stored) {
			i.entries[name] = i.stored[name]
			restore(i.stored[name])
		}
	}
	restore(d.root)
}
