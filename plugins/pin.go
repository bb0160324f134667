package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/internal/owned"
)

// Pin says what a plugin has to be to be loaded. Grants go by the name that a
// plugin gives itself, which any file can give itself: a pin makes them stick to
// what was granted.
type Pin struct {
	// Digest is that of the plugin's file, see [Plugin.Digest].
	Digest string `json:"digest"`
	// Sidecar is the sha256, in hex, of the manifest beside the file, as JSON. It
	// is empty if the plugin has its manifest from itself.
	Sidecar string `json:"sidecar,omitempty"`
}

// ErrPinned is why a plugin is not loaded: its name is pinned, and it is not what
// the pin says.
var ErrPinned = errors.New("not what is pinned")

// pinError says which plugin is not what its pin says. It matches [ErrPinned].
type pinError struct {
	name       string
	want, have Pin
}

func (e *pinError) Error() string {
	accept := "if you want this one, run toolhost pin " + e.name
	if e.want.Digest == e.have.Digest {
		return fmt.Sprintf("the plugin %q is pinned to %s with another manifest beside it: %s", e.name, short(e.want.Digest), accept)
	}
	return fmt.Sprintf("the plugin %q is pinned to %s, and this file is %s: %s", e.name, short(e.want.Digest), short(e.have.Digest), accept)
}

func (e *pinError) Unwrap() error { return ErrPinned }

// short is enough of a digest for people to tell it from others.
func short(digest string) string { return digest[:min(len(digest), 12)] }

// ReadPin reads the pin of a plugin from a folder of pins. It returns nil if the
// name is not pinned, or dir is empty or not there. A folder or file
// that others can write to is an error, and so is a pin that is not whole.
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

// decodePin refuses what it does not know: it may be one more condition.
func decodePin(file string, data []byte) (*Pin, error) {
	pin := new(Pin)
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(pin); err != nil || pin.Digest == "" {
		return nil, fmt.Errorf("%s is not a pin this version can read: remove it, or pin the plugin again", file)
	}
	return pin, nil
}

// WritePin pins a plugin in a folder of pins, which is made if it is not there.
// Registries of this folder follow at their next reload.
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

// RemovePin unpins a plugin. Its error matches fs.ErrNotExist if it is not
// pinned.
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

// Pin returns what a pin of the plugin as it was loaded says. Its error is that
// of [Plugin.Digest].
func (p *Plugin) Pin() (Pin, error) {
	digest, err := p.Digest()
	return Pin{Digest: digest, Sidecar: p.beside}, err
}

// Pinned reports whether the plugin's name is pinned, and so to this very plugin.
func (p *Plugin) Pinned() bool { return p.pin != nil }

// checkPin refuses a plugin that is not what its name is pinned to. Only of a
// plugin that is pinned it needs the digest.
func (l *loader) checkPin(p *Plugin) error {
	pin, err := ReadPin(l.cfg.PinDir, p.Manifest.Name)
	if err != nil {
		return fmt.Errorf("it cannot be known whether the plugin %q is pinned: %w", p.Manifest.Name, err)
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

// samePin reports whether a plugin is pinned as it was when it was loaded.
func (l *loader) samePin(p *Plugin) bool {
	pin, err := ReadPin(l.cfg.PinDir, p.Manifest.Name)
	if err != nil || pin == nil || p.pin == nil {
		return err == nil && pin == p.pin
	}
	return *pin == *p.pin
}

// pinnedAway reports whether the name of a plugin is by now pinned to another
// one, so that it must not go on.
func (l *loader) pinnedAway(p *Plugin) bool {
	pin, err := ReadPin(l.cfg.PinDir, p.Manifest.Name)
	return err == nil && pin != nil && *pin != Pin{Digest: p.known(), Sidecar: p.beside}
}
