// Package export packs plugins, along with a configuration that serves them, for programs
// that start MCP servers: as an agent plugin (agent-plugins.org, version 1.0.0) and as an MCP
// bundle (MCPB, version 0.3 of its manifest).
//
// The descriptions of plugins are untrusted text. The package shortens each one to one line,
// and replaces characters that have a special meaning in Markdown or to a client.
package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolhost/toolhost/internal/human"
)

// A Bundle is the input of an export. All fields except Author and Program are required.
type Bundle struct {
	Name        string // name: see [CheckName]
	Version     string // semantic version
	Description string // description, written by the operator
	Author      string
	Plugins     []Plugin
	Config      []byte   // configuration that serves the files in a folder "tools" next to it
	Program     *Program // program to include; nil means that clients find toolhost on their PATH
}

// A Plugin is a plugin to pack. Its Description is the one that it declares.
type Plugin struct {
	Name, Version, Description string
	Files                      map[string][]byte // contents of the files by name, without folders
	Tools                      []Tool
}

// A Tool is a tool as agents see it.
type Tool struct {
	Name, Description string
	Readonly          bool
}

// A Program is Toolhost itself, for the system GOOS.
type Program struct {
	GOOS string
	Data []byte
}

// A File is one file of an export.
type File struct {
	Data       []byte
	Executable bool
}

// Limits on text that comes from plugins.
const (
	maxAbout       = 400       // characters about a plugin or a tool
	maxDescription = 1024      // characters in a skill's description, the limit set by Agent Skills
	maxSkill       = 24 * 1024 // characters in a skill's body
)

var name = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// CheckName returns an error if a bundle cannot have this name. Agent Plugins and Agent
// Skills allow up to 64 lower-case letters, digits, and single hyphens between them.
func CheckName(s string) error {
	if len(s) > 64 || !name.MatchString(s) {
		return fmt.Errorf("invalid name %q: expected up to 64 lower-case letters and digits, with single hyphens between them", s)
	}
	return nil
}

// check returns an error if the bundle cannot be exported.
func (b Bundle) check() error {
	if err := CheckName(b.Name); err != nil {
		return err
	}
	if len(b.tools()) == 0 {
		return errors.New("no tools to export")
	}
	for _, p := range b.Plugins {
		for file := range p.Files {
			if file != path.Base(file) || strings.ContainsAny(file, `\:`) {
				return fmt.Errorf("plugin %s: invalid file name %q", p.Name, file)
			}
		}
	}
	return nil
}

func (b Bundle) tools() (all []Tool) {
	for _, p := range b.Plugins {
		all = append(all, p.Tools...)
	}
	return all
}

// files returns the files that both formats contain: the plugins and their configuration.
func (b Bundle) files() (map[string]File, error) {
	files := map[string]File{"toolhost.yaml": {Data: b.Config}}
	for _, p := range b.Plugins {
		for _, file := range slices.Sorted(maps.Keys(p.Files)) {
			to := "tools/" + file
			if _, ok := files[to]; ok {
				return nil, fmt.Errorf("two files are called %s: rename one", file)
			}
			files[to] = File{Data: p.Files[file]}
		}
	}
	return files, nil
}

// program adds the program's file to files, in a folder, and returns its path.
func (p Program) add(files map[string]File, folder string) string {
	to := folder + "/toolhost"
	if p.GOOS == "windows" {
		to += ".exe"
	}
	files[to] = File{Data: p.Data, Executable: true}
	return to
}

// document returns a value as indented JSON.
func document(v any) File {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // all of these types can be encoded
	return File{Data: text.Bytes()}
}

// line shortens a plugin's text to one line of at most n characters, and makes terminal
// control characters visible.
func line(s string, n int) string {
	s = string(human.Visible([]byte(strings.Join(strings.Fields(strings.ToValidUTF8(s, "�")), " "))))
	return cut(s, n)
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
