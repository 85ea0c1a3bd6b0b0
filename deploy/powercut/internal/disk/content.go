//go:build linux

package disk

import (
	"maps"
	"slices"
)

// pageSize is the number of bytes that the page cache writes back to the disk as a unit. sectorSize
// is the number of bytes that the disk writes either as a whole or not at all. A power cut can
// therefore leave only the first sectors of a page.
const pageSize, sectorSize = 4096, 512

// fileContent is the data of a file in two versions: the current one, which programs read, and the
// durable one, which would survive a power cut. The fields of the durable version begin with
// "stored". The two versions share equal pages.
type fileContent struct {
	size, storedSize   int64
	pages, storedPages [][]byte // a nil page reads as zeros
	// dirtyPages holds the numbers of the pages that differ between the two versions.
	dirtyPages map[int64]bool
}

// writablePage returns page n of the current version for writing. A page that is not dirty is also
// a page of the durable version, so writablePage first replaces it with a copy.
func (c *fileContent) writablePage(n int64) []byte {
	c.pages = ensurePage(c.pages, n)
	if !c.dirtyPages[n] {
		c.markDirty(n)
		page := make([]byte, pageSize)
		copy(page, c.pages[n])
		c.pages[n] = page
	} else if c.pages[n] == nil {
		c.pages[n] = make([]byte, pageSize)
	}
	return c.pages[n]
}

func (c *fileContent) markDirty(n int64) {
	if c.dirtyPages == nil {
		c.dirtyPages = map[int64]bool{}
	}
	c.dirtyPages[n] = true
}

func ensurePage(pages [][]byte, n int64) [][]byte {
	if missing := n + 1 - int64(len(pages)); missing > 0 {
		pages = append(pages, make([][]byte, missing)...)
	}
	return pages
}

func (c *fileContent) write(data []byte, at int64) {
	for len(data) > 0 {
		n := copy(c.writablePage(at / pageSize)[at%pageSize:], data)
		data, at = data[n:], at+int64(n)
		c.size = max(c.size, at)
	}
}

func (c *fileContent) read(into []byte, at int64) int {
	into = into[:max(0, min(int64(len(into)), c.size-at))]
	total := len(into)
	for len(into) > 0 {
		n := int(min(int64(len(into)), pageSize-at%pageSize))
		if page := at / pageSize; page < int64(len(c.pages)) && c.pages[page] != nil {
			copy(into[:n], c.pages[page][at%pageSize:])
		} else {
			clear(into[:n])
		}
		into, at = into[n:], at+int64(n)
	}
	return total
}

func (c *fileContent) truncate(size int64) {
	if size < c.size {
		if size%pageSize != 0 && size/pageSize < int64(len(c.pages)) {
			clear(c.writablePage(size / pageSize)[size%pageSize:])
		}
		for n := (size + pageSize - 1) / pageSize; n < int64(len(c.pages)); n++ {
			if c.pages[n] != nil {
				c.pages[n] = nil
				c.markDirty(n)
			}
		}
	}
	c.size = size
}

// sync makes the current version durable.
func (c *fileContent) sync() {
	for n := range c.dirtyPages {
		c.storePage(n, c.pages[n])
	}
	c.dirtyPages, c.storedSize = nil, c.size
}

func (c *fileContent) storePage(n int64, page []byte) {
	c.storedPages = ensurePage(c.storedPages, n)
	c.storedPages[n] = page
}

// applyPowerCut simulates the effect of a power cut. The file afterwards consists of the durable
// version and of none, all or some of the dirty pages, because an operating system may also write
// pages to the disk without an fsync. luck decides which pages.
func (c *fileContent) applyPowerCut(luck Randomness) {
	switch luck.IntN(3) {
	case 0:
	case 1:
		c.sync()
	case 2:
		c.storeSomeDirty(luck)
	}
	c.dirtyPages, c.size, c.pages = nil, c.storedSize, slices.Clone(c.storedPages)
	// Discard everything after the end of the file: clear the rest of the last page, and drop later
	// pages. Otherwise, old data would reappear when the file grows again.
	whole := c.size / pageSize
	if tail := c.size % pageSize; tail != 0 && whole < int64(len(c.pages)) &&
		c.pages[whole] != nil {
		page := make([]byte, pageSize)
		copy(page, c.pages[whole][:tail])
		c.pages[whole] = page
		whole++
	}
	c.pages = c.pages[:min(int64(len(c.pages)), whole)]
	c.storedPages = slices.Clone(c.pages)
}

// storeSomeDirty makes some of the dirty pages durable, some of them only in part: their first
// sectors. If the file has grown, its durable version ends with the last byte that became durable.
// New pages before that byte that did not become durable read as zeros.
func (c *fileContent) storeSomeDirty(luck Randomness) {
	if c.size < c.storedSize && luck.IntN(2) == 0 {
		c.storedSize = c.size
	}
	for _, n := range slices.Sorted(maps.Keys(c.dirtyPages)) {
		if c.pages[n] == nil || luck.IntN(2) == 0 {
			continue
		}
		sectors := pageSize / sectorSize
		if luck.IntN(4) == 0 {
			sectors = luck.IntN(sectors)
		}
		page := make([]byte, pageSize)
		if n < int64(len(c.storedPages)) {
			copy(page, c.storedPages[n])
		}
		copy(page[:sectors*sectorSize], c.pages[n])
		c.storePage(n, page)
		c.storedSize = max(c.storedSize, min(c.size, n*pageSize+int64(sectors*sectorSize)))
	}
}
