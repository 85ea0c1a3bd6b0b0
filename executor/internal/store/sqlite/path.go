package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/hookstart/hookstart/shared/durable"
)

// ensureFile creates the database file and its folder, and returns the file's absolute path. Only
// the owner can access the file, and SQLite creates the accompanying files with the same mode. The
// errors of ensureFile contain the path. Without ensureFile, an operator would see only SQLite's
// message "unable to open database file (14)".
func ensureFile(path string) (absolute string, err error) {
	if path == "" {
		return "", errors.New("the database path is empty: name a file")
	}
	absolute, err = filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("cannot resolve the database path %s: %w", path, err)
	}
	folder := filepath.Dir(absolute)
	if err := durable.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("cannot create the folder of the database %s: %w: "+
			"create %s for this user, or choose another database path", absolute, withoutPath(err),
			folder)
	}
	// #nosec G304 -- the operator's own path.
	file, err := os.OpenFile(absolute, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", fmt.Errorf("cannot write the database %s: %w: "+
			"make the file and its folder writable for this user, or choose another database path",
			absolute, withoutPath(err))
	}
	// Sync the folder, so that the directory entry of the database file survives a power failure.
	// SQLite does not sync the folder for the database file, but only for its journals.
	if err := errors.Join(file.Close(), durable.SyncFolder(folder)); err != nil {
		return "", fmt.Errorf("cannot write the database %s: %w", absolute, err)
	}
	return absolute, nil
}

// withoutPath returns a file error without the path, which the caller's message already contains.
func withoutPath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// dataSourceName returns the driver's data source name for the file. It contains the settings that
// every connection needs, and the additional settings in further, a list of alternating keys and
// values. The path is escaped, because it may contain ? and %.
func dataSourceName(path string, further ...string) string {
	options := url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"journal_mode(WAL)",
		// wal_autocheckpoint is in pages. With the default, every other full batch would trigger a
		// checkpoint, which copies pages that the next batch changes again.
		"wal_autocheckpoint(8000)",
		// A negative cache_size is in KiB. synchronous is FULL because, with NORMAL, a power
		// failure could lose the last commits.
		"cache_size(-32000)", "synchronous(FULL)",
		"case_sensitive_like(1)", // LIKE distinguishes upper and lower case, as in PostgreSQL
	}}
	for i := 0; i+1 < len(further); i += 2 {
		options.Add(further[i], further[i+1])
	}
	return (&url.URL{
		Scheme:   "file",
		OmitHost: true,
		Path:     filepath.ToSlash(path),
		RawQuery: options.Encode(),
	}).String()
}
