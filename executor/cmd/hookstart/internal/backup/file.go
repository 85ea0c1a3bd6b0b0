// Package backup copies a running installation to a file, and restores such a file into an empty,
// running installation.
//
// # The content of a file
//
// A file is a ZIP archive, which many tools can read, followed by a line with the SHA-256 of
// everything before that line. A file that is truncated or damaged, even by a single bit, is
// rejected before anything is restored.
//
//	records.jsonl          the content of the database, in the store's types, so that a backup
//	                       of SQLite can be restored into PostgreSQL
//	streams/EXECUTIONS     the messages of a stream, one JSON text per line, in the order of
//	                       their sequences
//	streams/QUEUE_{queue}  likewise, for each queue with a stream of its own
//	streams/PROGRESS
//	streams/PROGRESS_{queue}
//	streams/REPORTS        the messages that are not applied yet
//	buckets/registry       the records of a bucket, in the same form
//	buckets/registry_secrets
//	audit.jsonl            the audit entries of the changes that were made while the rest was read
//	manifest.json          the description of the content, with the position of each consumer
//
// # Consistency
//
// The installation keeps running while a backup is taken, so the parts of the backup are from
// different moments. They are read in this order, so that each part covers at least the history of
// the parts before it:
//
//  1. The recorder's position in each stream (its consumer's ack floor). Every message up to that
//     position is recorded in the database.
//  2. The database, as of a single moment.
//  3. The position of each group of runners. Runners report the end of an execution before they
//     acknowledge its start message.
//  4. EXECUTIONS and the queues' own streams, up to their last messages at that time. Then PROGRESS
//     and the queues' own streams of reports in the same way. Because step 4 comes after step 3,
//     these include every report about an acknowledged execution.
//  5. The registry, then the secrets, because a token's hash is stored after the token.
//  6. The audit entries of the changes between steps 2 and 5, once the executors have copied them
//     into the database. An entry that is also in the database read in step 2 is restored only
//     once.
//
// After a restore, the recorder continues at the positions read in step 1, so it records the
// messages that arrived between steps 1 and 4 from the streams. As always, a message that has
// already been recorded is not recorded twice.
package backup

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/hookstart/hookstart/shared/durable"
)

// Versions of the file format. A program can read its own version and all earlier ones. A backup
// gets the newer version only if it contains streams that belong to a single queue, so that earlier
// programs can still read all other backups.
const (
	formatVersionSharedStreams = 1
	formatVersionOwnStreams    = 2
	currentFormatVersion       = formatVersionOwnStreams
)

const manifestEntryName = "manifest.json"

// A file ends with trailerPrefix, the SHA-256 as 64 hexadecimal digits, and trailerSuffix.
// trailerLength is the total length of the three, in bytes.
const (
	trailerPrefix = "\nhookstart backup "
	trailerSuffix = " complete\n"
	trailerLength = len(trailerPrefix) + 2*sha256.Size + len(trailerSuffix)
)

// writer writes a backup file. The file gets its final name only after all of it has been synced to
// disk.
type writer struct {
	finalPath string
	file      *os.File
	hash      hash.Hash
	buf       *bufio.Writer
	zip       *zip.Writer
}

func createWriter(path string) (*writer, error) {
	// CreateTemp makes the file readable only by its owner.
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.incomplete")
	if err != nil {
		return nil, err
	}
	w := &writer{finalPath: path, file: file, hash: sha256.New()}
	w.buf = bufio.NewWriterSize(io.MultiWriter(file, w.hash), 1<<20)
	w.zip = zip.NewWriter(w.buf)
	w.zip.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(out, flate.BestSpeed)
	})
	return w, nil
}

// createEntry starts the next entry of the ZIP archive and returns the writer for its content. The
// previous entry can no longer be written.
func (w *writer) createEntry(name string) (io.Writer, error) { return w.zip.Create(name) }

// writeManifestAndTrailer writes the manifest and the last line, syncs the file to disk and closes
// it.
func (w *writer) writeManifestAndTrailer(m Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	to, err := w.createEntry(manifestEntryName)
	if err != nil {
		return err
	}
	if _, err := to.Write(text); err != nil {
		return err
	}
	if err := errors.Join(w.zip.Close(), w.buf.Flush()); err != nil {
		return err
	}
	if _, err := w.file.WriteString(trailerPrefix + hex.EncodeToString(w.hash.Sum(nil)) +
		trailerSuffix); err != nil {
		return err
	}
	return errors.Join(w.file.Sync(), w.file.Close())
}

// commit renames the file to its final name and syncs its folder, so that the name survives a power
// failure.
func (w *writer) commit() error {
	if err := os.Rename(w.file.Name(), w.finalPath); err != nil {
		return err
	}
	return durable.SyncFolder(filepath.Dir(w.finalPath))
}

// discard removes the unfinished file. It does nothing after commit.
func (w *writer) discard() {
	_ = w.file.Close()
	_ = os.Remove(w.file.Name())
}

// reader reads a backup file whose checksum has been verified.
type reader struct {
	Manifest Manifest
	file     *os.File
	zip      *zip.Reader
}

// UnusableFileError means that the file at Path cannot be restored. Problem says why, as the
// predicate of a sentence about the file: "is truncated".
type UnusableFileError struct {
	Path, Problem string
}

func (e *UnusableFileError) Error() string { return e.Path + " " + e.Problem }

// openReader verifies a file's checksum and reads its manifest. It returns an *UnusableFileError if
// the file is not an intact backup, or if its format is newer than currentFormatVersion.
func openReader(path string) (r *reader, err error) {
	file, err := os.Open(path) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	length, err := verifyChecksum(file, path)
	if err != nil {
		return nil, err
	}
	r = &reader{file: file}
	if r.zip, err = zip.NewReader(io.NewSectionReader(file, 0, length), length); err != nil {
		return nil, &UnusableFileError{path, "is not a backup of hookstart: " + err.Error()}
	}
	if err := r.readManifest(); err != nil {
		return nil, &UnusableFileError{path, "is not a backup of hookstart: " + err.Error()}
	}
	if r.Manifest.FormatVersion > currentFormatVersion {
		return nil, &UnusableFileError{
			path,
			fmt.Sprintf("was made by a newer version, %s; restore it with that one",
				r.Manifest.Version),
		}
	}
	return r, nil
}

// verifyChecksum verifies the file's checksum and returns the length of the archive in the file.
func verifyChecksum(file *os.File, path string) (length int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	begin := make([]byte, 4)
	if _, err := file.ReadAt(begin, 0); err != nil || !bytes.HasPrefix(begin, []byte("PK")) {
		return 0, &UnusableFileError{path, "is not a backup of hookstart"}
	}
	length = info.Size() - int64(trailerLength)
	end := make([]byte, trailerLength)
	if length > 0 {
		if _, err := file.ReadAt(end, length); err != nil {
			return 0, err
		}
	}
	if !bytes.HasPrefix(end, []byte(trailerPrefix)) ||
		!bytes.HasSuffix(end, []byte(trailerSuffix)) {
		return 0, &UnusableFileError{path, "is truncated: its end is missing"}
	}
	hashed := sha256.New()
	if _, err := io.Copy(hashed, io.NewSectionReader(file, 0, length)); err != nil {
		return 0, err
	}
	if string(
		end[len(trailerPrefix):len(end)-len(trailerSuffix)],
	) != hex.EncodeToString(hashed.Sum(nil)) {
		return 0, &UnusableFileError{
			path, "is damaged: its contents do not have the checksum at its end",
		}
	}
	return length, nil
}

func (r *reader) readManifest() error {
	from, err := r.zip.Open(manifestEntryName)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	return json.NewDecoder(from).Decode(&r.Manifest)
}

// hasEntry reports whether the file contains the named entry.
func (r *reader) hasEntry(name string) bool {
	return slices.ContainsFunc(r.zip.File, func(f *zip.File) bool { return f.Name == name })
}

// forEachLine passes every line of the named entry to a callback. If the callback returns an error,
// forEachLine stops and returns that error.
func (r *reader) forEachLine(name string, each func(line []byte) error) error {
	from, err := r.zip.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	lines := bufio.NewReaderSize(from, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

// forEachMessage passes every message in the named entry, which holds a stream or a bucket, to a
// callback. If the callback returns an error, forEachMessage stops and returns that error.
func (r *reader) forEachMessage(name string, each func(message) error) error {
	return r.forEachLine(name, func(line []byte) error {
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		return each(m)
	})
}

func (r *reader) close() { _ = r.file.Close() }
