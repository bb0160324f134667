package webui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
)

//go:embed static templates
var files embed.FS

// build names all files together. It is in the addresses of static files, which
// browsers therefore may keep for ever, and tells a script that it is an old one.
var build = sumOf(files)

func sumOf(files fs.FS) string {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		sum.Write([]byte(name + "\x00"))
		sum.Write(data)
		return err
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// asset is the address of a static file.
func asset(name string) string { return "/ui/static/" + build + "/" + name }

// static answers with a file that is in the program.
func static(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	data, err := files.ReadFile("static/" + name)
	if err != nil || r.PathValue("build") != build {
		return &refusal{http.StatusNotFound, "There is no such file"}
	}
	h := w.Header()
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	h.Set("Content-Type", types[path.Ext(name)])
	_, _ = w.Write(data) // what goes wrong here is a client that is gone
	return nil
}

// types are the media types of static files, whatever the system says.
var types = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}
