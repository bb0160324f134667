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

// build identifies all files together. It is part of the addresses of static files, so
// that browsers may cache them forever, and an old script notices that it is old.
var build = sumOf(files)

func sumOf(files fs.FS) string {
	sum := sha256.New()
	names, _ := fs.Glob(files, "*/*") // the pattern is valid
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err) // the files are embedded
		}
		sum.Write([]byte(name + "\x00"))
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// asset returns the address of a static file.
func asset(name string) string { return "/ui/static/" + build + "/" + name }

// mediaTypes are the media types of static files, regardless of the system.
var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

// static serves an embedded file.
func static(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	data, err := files.ReadFile("static/" + name)
	if err != nil || r.PathValue("build") != build {
		return refuse(http.StatusNotFound, "There is no such file")
	}

	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	w.Header().Set("Content-Type", mediaTypes[path.Ext(name)])
	_, _ = w.Write(data) // fails only if the client is gone
	return nil
}
