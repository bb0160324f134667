// Package lock reads and writes toolhost.lock, which records what an operator has accepted
// about each plugin. Reading is strict and bounded, because the file may come from an
// untrusted repository. Writing is sorted, so that a change to one plugin changes only that
// plugin's lines.
package lock

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
)

// Name is the name of the file, which is next to the configuration that it belongs to.
const Name = "toolhost.lock"

// Version is the version of the file format.
const Version = 1

// File is the content of a lock. The zero File accepts no plugins.
type File struct {
	Version int      `yaml:"version"`
	Plugins []Plugin `yaml:"plugins"`
}

// Plugin records the accepted state of one plugin. Digests are "sha256:" and 64
// hexadecimal digits, see [Digest].
type Plugin struct {
	Name    string `yaml:"name"`
	Version string `yaml:"version"` // version of the plugin, from its manifest
	// Source is the entry in the setting plugins, as written by the operator: a folder, or a
	// reference that begins with oci://. For plugins that come with the program it is
	// [Starter] or [BuiltIn].
	Source string `yaml:"source"`
	// Resolved is the name of the file in the folder, or the reference together with the
	// digest of its manifest, such as ghcr.io/acme/web@sha256:….
	Resolved string `yaml:"resolved"`
	Module   string `yaml:"module"`            // digest of the module
	Sidecar  string `yaml:"sidecar,omitempty"` // digest of the manifest next to the module, as JSON; empty if the module contains its own
	// Tools maps the name of each tool within the plugin to its digest: see [ToolDigest].
	Tools map[string]string `yaml:"tools"`
	// Grants lists the accepted grants from the configuration: sorted, one line for each
	// resource that the plugin may use.
	Grants []string `yaml:"grants,omitempty"`
	// Wider helps to compare the plugin with its accepted version. It maps grants
	// of the plugin to grants that include them, such as reading a folder to writing to
	// it. It is not part of the file.
	Wider map[string]string `yaml:"-"`
	// Signer is the signer of the module. It is nil for unsigned modules, for which Unsigned
	// is true unless the plugin comes with the program.
	Signer   *Signer `yaml:"signer,omitempty"`
	Unsigned bool    `yaml:"unsigned,omitempty"`
}

// The sources of plugins that come with the program. These plugins are not signed: the
// program vouches for them.
const (
	Starter = "starter"
	BuiltIn = "built-in"
)

// Signer is an identity proven by a signature. Exactly one field is set.
type Signer struct {
	Minisign string    `yaml:"minisign,omitempty"` // minisign public key
	Key      string    `yaml:"key,omitempty"`      // digest of a public key of another kind
	Sigstore *Sigstore `yaml:"sigstore,omitempty"`
}

// Sigstore is an identity certified by an issuer.
type Sigstore struct {
	Issuer   string `yaml:"issuer"`   // URL of the issuer
	Identity string `yaml:"identity"` // identity in the certificate, such as an email address or the URL of a workflow
}

// Digest returns the SHA-256 of data in the format used in a lock.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// OfHex converts a SHA-256 in hex to the format used in a lock. An empty string stays empty.
func OfHex(sum string) string {
	if sum == "" {
		return ""
	}
	return digestPrefix + sum
}

const digestPrefix = "sha256:"

// At returns the accepted plugin for a file in a source, or nil. If the source is a registry
// reference, it ignores the file, because each reference names one plugin.
func (f *File) At(source, file string) *Plugin {
	return f.find(func(p Plugin) bool { return p.Source == source && (p.Resolved == file || IsOCI(source)) })
}

// Named returns the accepted plugin with this name, or nil.
func (f *File) Named(name string) *Plugin {
	return f.find(func(p Plugin) bool { return p.Name == name })
}

func (f *File) find(is func(Plugin) bool) *Plugin {
	if i := slices.IndexFunc(f.Plugins, is); i >= 0 {
		return &f.Plugins[i]
	}
	return nil
}

// File returns the name of the plugin's file: its name in the folder, or for a registry, the
// last part of the repository's name followed by ".wasm".
func (p *Plugin) File() string {
	if !IsOCI(p.Source) {
		return p.Resolved
	}
	repository, _, _ := strings.Cut(p.Resolved, "@")
	return path.Base(repository) + ".wasm"
}

// Set accepts a plugin. It replaces any other plugin with the same name.
func (f *File) Set(p Plugin) {
	f.Remove(p.Name)
	f.Plugins = append(f.Plugins, p)
	slices.SortFunc(f.Plugins, func(a, b Plugin) int { return cmp.Compare(a.Name, b.Name) })
}

// Remove removes the plugin with this name.
func (f *File) Remove(name string) {
	f.Plugins = slices.DeleteFunc(f.Plugins, func(p Plugin) bool { return p.Name == name })
}
