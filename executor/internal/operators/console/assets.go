package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
)

//go:embed assets
var assetFiles embed.FS

// assets serves the scripts, styles and icons. The path of each contains a hash of all of these
// files. Browsers may therefore cache them forever, and scripts that import each other always come
// from the same version.
type assets struct {
	path    string // without a trailing slash
	handler http.Handler
}

func loadAssets() assets {
	files, err := fs.Sub(assetFiles, "assets")
	if err != nil {
		panic(err) // cannot fail: the files are embedded
	}
	hash := sha256.New()
	err = fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		hash.Write([]byte(path))
		hash.Write(text)
		return err
	})
	if err != nil {
		panic(err)
	}
	path := "/assets/" + hex.EncodeToString(hash.Sum(nil)[:8])
	return assets{path, http.StripPrefix(path, http.FileServerFS(files))}
}

func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == a.path+"/" {
		http.NotFound(w, r) // no directory listing
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	a.handler.ServeHTTP(w, r)
}
