package export

import (
	"archive/zip"
	"bytes"
	"errors"
	"maps"
	"slices"
)

type bundleManifest struct {
	ManifestVersion string           `json:"manifest_version"`
	Name            string           `json:"name"`
	Version         string           `json:"version"`
	Description     string           `json:"description"`
	Author          agentAuthor      `json:"author"`
	Server          bundleServer     `json:"server"`
	Tools           []bundleTool     `json:"tools"`
	Generated       bool             `json:"tools_generated"`
	Compatibility   bundleCompatible `json:"compatibility"`
}

type bundleServer struct {
	Type       string       `json:"type"`
	EntryPoint string       `json:"entry_point"`
	Config     bundleConfig `json:"mcp_config"`
}

type bundleConfig struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

type bundleTool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type bundleCompatible struct {
	Platforms []string `json:"platforms"`
}

// platforms maps the names of systems in Go to those in MCPB.
var platforms = map[string]string{"linux": "linux", "darwin": "darwin", "windows": "win32"}

// MCPB returns an MCP bundle, which is a reproducible ZIP file. The Bundle must have an
// Author and a Program.
func (b Bundle) MCPB() ([]byte, error) {
	switch err := b.check(); {
	case err != nil:
		return nil, err
	case b.Author == "":
		return nil, errors.New("an MCP bundle needs an author")
	case b.Program == nil || platforms[b.Program.GOOS] == "":
		return nil, errors.New("an MCP bundle needs a program for Linux, macOS or Windows")
	}
	files, err := b.files()
	if err != nil {
		return nil, err
	}

	entry := b.Program.add(files, "server")
	m := bundleManifest{
		ManifestVersion: "0.3", Name: b.Name, Version: b.Version, Description: b.Description, Author: agentAuthor{b.Author},
		Server:        bundleServer{"binary", entry, bundleConfig{"${__dirname}/" + entry, []string{"mcp", "--config", "${__dirname}/toolhost.yaml"}}},
		Generated:     true, // the tools of background runs are not listed
		Compatibility: bundleCompatible{[]string{platforms[b.Program.GOOS]}},
	}
	for _, t := range b.tools() {
		m.Tools = append(m.Tools, bundleTool{t.Name, line(t.Description, maxAbout)})
	}
	files["manifest.json"] = document(m)
	return archive(files)
}

// archive returns a ZIP file, in which files are sorted by name and have no times.
func archive(files map[string]File) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(0o644)
		if files[name].Executable {
			h.SetMode(0o755)
		}

		entry, err := w.CreateHeader(h)
		if err == nil {
			_, err = entry.Write(files[name].Data)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
