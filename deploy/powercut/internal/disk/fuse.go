//go:build linux

package disk

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Mount is a mounted disk, which programs can use.
type Mount struct{ server *fuse.Server }

// CheckMountable returns an error with the reason if this user cannot mount a disk on this machine.
// To find out, it mounts an empty disk on folder and unmounts it again. Nothing else may use the
// folder during the call.
func CheckMountable(folder string) error {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return fmt.Errorf("this machine has no FUSE: %w", err)
	}
	m, err := New(ModelOrdered).Mount(folder)
	if err != nil {
		return fmt.Errorf("this user may not mount a FUSE file system (root may, and others with "+
			"fusermount3): %w", err)
	}
	return m.Unmount()
}

// Mount mounts the disk on a folder. It needs /dev/fuse, and either the right to mount or the
// program fusermount3.
func (d *Disk) Mount(folder string) (*Mount, error) {
	// Only this mount changes the disk, so the kernel may cache names and attributes for a long
	// time.
	always := time.Hour
	server, err := fs.Mount(folder, &node{disk: d, inode: d.root}, &fs.Options{
		EntryTimeout: &always, AttrTimeout: &always, NullPermissions: true,
		RootStableAttr: &fs.StableAttr{Ino: d.root.number},
		MountOptions: fuse.MountOptions{
			FsName: "powercut", Name: "powercut", DisableXAttrs: true, MaxWrite: 1 << 20,
			DirectMountStrict: os.Geteuid() == 0,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("mount a FUSE file system: %w", err)
	}
	return &Mount{server: server}, nil
}

// Unmount unmounts the disk and drops the kernel's caches of it. No program may have files open.
func (m *Mount) Unmount() error {
	if err := m.server.Unmount(); err != nil {
		return fmt.Errorf("unmount: %w", err)
	}
	return nil
}

// node connects an inode to the FUSE library.
type node struct {
	fs.Inode

	disk  *Disk
	inode *inode
}

// openFile is an open file. syncWrites is true if the file was opened so that every write is synced
// (O_SYNC).
type openFile struct{ syncWrites bool }

var (
	_ fs.NodeCreater   = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeLinker    = (*node)(nil)
	_ fs.NodeLookuper  = (*node)(nil)
	_ fs.NodeMkdirer   = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReaddirer = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeRenamer   = (*node)(nil)
	_ fs.NodeRmdirer   = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
	_ fs.NodeStatfser  = (*node)(nil)
	_ fs.NodeUnlinker  = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
)

// withLock calls the function do while it holds the disk's lock. If the power is off, it returns
// EIO instead.
func (n *node) withLock(do func() syscall.Errno) syscall.Errno {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if n.disk.poweredOff {
		return syscall.EIO
	}
	return do()
}

func (i *inode) fillAttributes(out *fuse.Attr) {
	//nolint:gosec // never negative
	out.Ino, out.Mode, out.Nlink, out.Size = i.number, i.mode, max(i.links, 1),
		uint64(i.content.size)
	out.Blksize, out.Blocks = pageSize, (out.Size+511)/512
	out.Uid, out.Gid = uint32(os.Getuid()), uint32(os.Getgid()) //nolint:gosec // they fit
	out.SetTimes(nil, &i.modified, &i.modified)
}

// newChild returns the FUSE inode for i and fills in its attributes.
func (n *node) newChild(ctx context.Context, i *inode, out *fuse.EntryOut) *fs.Inode {
	i.fillAttributes(&out.Attr)
	return n.NewInode(ctx, &node{disk: n.disk, inode: i}, fs.StableAttr{
		Mode: i.mode & syscall.S_IFMT,
		Ino:  i.number,
	})
}

func (n *node) Lookup(
	ctx context.Context, name string, out *fuse.EntryOut,
) (child *fs.Inode, errno syscall.Errno) {
	errno = n.withLock(func() syscall.Errno {
		i := n.inode.entries[name]
		if i == nil {
			return syscall.ENOENT
		}
		child = n.newChild(ctx, i, out)
		return fs.OK
	})
	return child, errno
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return n.withLock(func() syscall.Errno {
		n.inode.fillAttributes(&out.Attr)
		return fs.OK
	})
}

func (n *node) Setattr(
	_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut,
) syscall.Errno {
	return n.withLock(func() syscall.Errno {
		if mode, ok := in.GetMode(); ok {
			n.inode.mode = n.inode.mode&syscall.S_IFMT | mode&^syscall.S_IFMT
		}
		if size, ok := in.GetSize(); ok {
			n.inode.content.truncate(int64(size)) //nolint:gosec // the kernel bounds it
			n.inode.modified = time.Now()
		}
		if modified, ok := in.GetMTime(); ok {
			n.inode.modified = modified
		}
		n.inode.fillAttributes(&out.Attr)
		return fs.OK
	})
}

func (n *node) Readdir(context.Context) (stream fs.DirStream, errno syscall.Errno) {
	errno = n.withLock(func() syscall.Errno {
		var list []fuse.DirEntry
		for _, name := range sortedNames(n.inode.entries) {
			i := n.inode.entries[name]
			list = append(list, fuse.DirEntry{Name: name, Ino: i.number, Mode: i.mode})
		}
		stream = fs.NewListDirStream(list)
		return fs.OK
	})
	return stream, errno
}

func sortedNames(entries map[string]*inode) []string { return slices.Sorted(maps.Keys(entries)) }

// create creates a file or a folder, depending on mode.
func (n *node) create(
	ctx context.Context, name string, mode uint32, out *fuse.EntryOut,
) (child *fs.Inode, errno syscall.Errno) {
	errno = n.withLock(func() syscall.Errno {
		if n.inode.entries[name] != nil {
			return syscall.EEXIST
		}
		i := n.disk.newInode(mode)
		n.disk.applyChanges(entryChange{n.inode, name, i})
		child = n.newChild(ctx, i, out)
		return fs.OK
	})
	return child, errno
}

func (n *node) Mkdir(
	ctx context.Context, name string, mode uint32, out *fuse.EntryOut,
) (*fs.Inode, syscall.Errno) {
	return n.create(ctx, name, syscall.S_IFDIR|mode&0o7777, out)
}

func (n *node) Create(
	ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut,
) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	child, errno := n.create(ctx, name, syscall.S_IFREG|mode&0o7777, out)
	if errno != fs.OK {
		return nil, nil, 0, errno
	}
	return child, newHandle(flags), fuse.FOPEN_KEEP_CACHE, fs.OK
}

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	errno := n.withLock(func() syscall.Errno {
		if flags&syscall.O_TRUNC != 0 {
			n.inode.content.truncate(0)
		}
		return fs.OK
	})
	return newHandle(flags), fuse.FOPEN_KEEP_CACHE, errno
}

func newHandle(flags uint32) *openFile {
	return &openFile{syncWrites: flags&(syscall.O_SYNC|syscall.O_DSYNC) != 0}
}

func (n *node) Read(
	_ context.Context, _ fs.FileHandle, into []byte, at int64,
) (result fuse.ReadResult, errno syscall.Errno) {
	errno = n.withLock(func() syscall.Errno {
		result = fuse.ReadResultData(into[:n.inode.content.read(into, at)])
		return fs.OK
	})
	return result, errno
}

func (n *node) Write(
	_ context.Context, f fs.FileHandle, data []byte, at int64,
) (uint32, syscall.Errno) {
	errno := n.withLock(func() syscall.Errno {
		n.inode.content.write(data, at)
		n.inode.modified = time.Now()
		if h, ok := f.(*openFile); ok && h.syncWrites {
			n.disk.sync(n.inode)
		}
		return fs.OK
	})
	return uint32(len(data)), errno //nolint:gosec // at most MaxWrite
}

// Fsync implements fsync of files and folders.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return n.withLock(func() syscall.Errno {
		n.disk.sync(n.inode)
		return fs.OK
	})
}

func (n *node) Link(
	ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut,
) (child *fs.Inode, errno syscall.Errno) {
	errno = n.withLock(func() syscall.Errno {
		linked, ok := target.(*node)
		if !ok {
			return syscall.EXDEV
		}
		if n.inode.entries[name] != nil {
			return syscall.EEXIST
		}
		n.disk.applyChanges(entryChange{n.inode, name, linked.inode})
		child = n.newChild(ctx, linked.inode, out)
		return fs.OK
	})
	return child, errno
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return n.withLock(func() syscall.Errno {
		if n.inode.entries[name] == nil {
			return syscall.ENOENT
		}
		n.disk.applyChanges(entryChange{folder: n.inode, name: name})
		return fs.OK
	})
}

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return n.withLock(func() syscall.Errno {
		switch i := n.inode.entries[name]; {
		case i == nil:
			return syscall.ENOENT
		case len(i.entries) > 0:
			return syscall.ENOTEMPTY
		}
		n.disk.applyChanges(entryChange{folder: n.inode, name: name})
		return fs.OK
	})
}

func (n *node) Rename(
	_ context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32,
) syscall.Errno {
	return n.withLock(func() syscall.Errno {
		to, ok := newParent.(*node)
		i := n.inode.entries[name]
		switch {
		case !ok || flags != 0:
			return syscall.EINVAL
		case i == nil:
			return syscall.ENOENT
		}
		if replaced := to.inode.entries[newName]; replaced != nil && len(replaced.entries) > 0 {
			return syscall.ENOTEMPTY
		}
		n.disk.applyChanges(entryChange{folder: n.inode, name: name}, entryChange{
			to.inode, newName,
			i,
		})
		return fs.OK
	})
}

// Statfs reports plenty of free space, because NATS stores nothing on a disk that seems to be full.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	const blocks = 64 << 30 / pageSize
	*out = fuse.StatfsOut{
		Blocks:  blocks,
		Bfree:   blocks,
		Bavail:  blocks,
		Files:   1 << 20,
		Ffree:   1 << 20,
		Bsize:   pageSize,
		Frsize:  pageSize,
		NameLen: 255,
	}
	return fs.OK
}
