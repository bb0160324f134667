package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/strictjson"
)

// Pin is the identity that a plugin must have to be loaded. Grants go by a plugin's
// name, and any file can claim a name: a pin ties the grants to one file.
type Pin struct {
	// Digest is the digest of the plugin's file, see [Plugin.Digest].
	Digest string `json:"digest"`
	// Sidecar is the SHA-256, in hex, of the manifest next to the file, as JSON. It is
	// empty if the manifest is the plugin's own.
	Sidecar string `json:"sidecar,omitempty"`
}

// ErrPinned says that a plugin is not loaded because it does not match the pin of its
// name.
var ErrPinned = errors.New("not what is pinned")

// pinError names the plugin and its pin. It matches [ErrPinned].
type pinError struct {
	name       string
	want, have Pin
}

func (e *pinError) Error() string {
	accept := "if you want this one, run toolhost pin " + e.name
	if e.want.Digest == e.have.Digest {
		return fmt.Sprintf("the plugin %q is pinned to %s with another manifest next to it: %s", e.name, short(e.want.Digest), accept)
	}
	return fmt.Sprintf("the plugin %q is pinned to %s, and this file is %s: %s", e.name, short(e.want.Digest), short(e.have.Digest), accept)
}

func (e *pinError) Unwrap() error { return ErrPinned }

// short is enough of a digest to recognize it.
func short(digest string) string { return digest[:min(len(digest), 12)] }

// ReadPin reads the pin of a plugin from a folder of pins. It returns nil if the name is
// not pinned, or dir is empty or missing. A folder or file that others can write to is
// an error, and so is a damaged pin.
func ReadPin(dir, name string) (*Pin, error) {
	if dir == "" {
		return nil, nil
	}
	file, err := pinFile(dir, name)
	if err != nil {
		return nil, err
	}

	if err = owned.Folder(dir); err == nil {
		var data []byte
		if data, err = owned.ReadFile(file); err == nil {
			return decodePin(file, data)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	return nil, err
}

// decodePin refuses unknown fields: they may be further conditions.
func decodePin(file string, data []byte) (*Pin, error) {
	pin := new(Pin)
	if err := strictjson.Decode(data, pin); err != nil || pin.Digest == "" {
		return nil, fmt.Errorf("%s is not a pin this version can read: remove it, or pin the plugin again", file)
	}
	return pin, nil
}

// WritePin pins a plugin in a folder of pins, which it creates if necessary. Registries
// that use the folder apply the pin at their next reload.
func WritePin(dir, name string, pin Pin) error {
	file, err := pinFile(dir, name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := owned.Folder(dir); err != nil {
		return err
	}

	data, err := json.Marshal(pin)
	if err != nil {
		return err
	}
	return owned.WriteFile(file, append(data, '\n'))
}

// RemovePin removes the pin of a plugin. The error matches fs.ErrNotExist if there is
// none.
func RemovePin(dir, name string) error {
	file, err := pinFile(dir, name)
	if err != nil {
		return err
	}
	return os.Remove(file)
}

func pinFile(dir, name string) (string, error) {
	file := name + ".json"
	if !filepath.IsLocal(file) || filepath.Base(file) != file {
		return "", fmt.Errorf("%q is not the name of a plugin", name)
	}
	return filepath.Join(dir, file), nil
}

// Pin returns the pin of the plugin as it was loaded. The error is that of
// [Plugin.Digest].
func (p *Plugin) Pin() (Pin, error) {
	digest, err := p.Digest()
	return Pin{Digest: digest, Sidecar: p.beside}, err
}

// Pinned reports whether the plugin is pinned.
func (p *Plugin) Pinned() bool { return p.pin != nil }

// checkPin refuses a plugin that does not match the pin of its name. It needs the digest
// of pinned plugins only.
func (l *loader) checkPin(p *Plugin) error {
	pin, err := ReadPin(l.cfg.PinDir, p.Manifest.Name)
	if err != nil {
		return fmt.Errorf("the pin of the plugin %q cannot be read: %w", p.Manifest.Name, err)
	}
	if pin == nil {
		return nil
	}

	have, err := p.Pin()
	if err != nil {
		return err
	}
	if have != *pin {
		return &pinError{p.Manifest.Name, *pin, have}
	}

	p.pin = pin
	return nil
}

// samePin reports whether the pin of a plugin is unchanged since it was loaded.
func (l *loader) samePin(p *Plugin) bool {
	pin, err := ReadPin(l.cfg.PinDir, p.Manifest.Name)
	if err != nil || pin == nil || p.pin == nil {
		return err == nil && pin == p.pin
	}
	return *pin == *p.pin
}

// pinnedAway reports whether the name of a plugin is now pinned to another one.
func (l *loader) pinnedAway(p *Plugin) bool {
	pin, err := ReadPin(l.cfg.PinDir, p.Manifest.Name)
	return err == nil && pin != nil && *pin != Pin{Digest: p.known(), Sidecar: p.beside}
}
