package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

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
var ErrPinned = errors.New("the plugin does not match its pin")

// pinError describes a plugin that does not match its pin. It matches [ErrPinned].
type pinError string

func (e pinError) Error() string { return string(e) }
func (pinError) Unwrap() error   { return ErrPinned }

// mismatch names the plugin and as much of the digests as one recognizes.
func (p Pin) mismatch(name string, have Pin) error {
	what := " with another manifest next to it"
	if p.Digest != have.Digest {
		what = fmt.Sprintf(", and this file is %.12s", have.Digest)
	}
	return pinError(fmt.Sprintf("the plugin %q is pinned to %.12s%s: if you want this one, run toolhost pin %s", name, p.Digest, what, name))
}

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

	var data []byte
	if err = owned.Folder(dir); err == nil {
		data, err = owned.ReadFile(file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	pin := new(Pin) // unknown fields are refused: they may be further conditions
	if err := strictjson.Decode(data, pin); err != nil || pin.Digest == "" {
		return nil, fmt.Errorf("%s is not a pin this version can read: remove it, or pin the plugin again", file)
	}
	return pin, nil
}

// WritePin pins a plugin in a folder of pins, which it creates if necessary. Registries
// that use the folder apply the pin at their next reload.
func WritePin(dir, name string, pin Pin) error {
	file, err := pinFile(dir, name)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = owned.Folder(dir)
	}
	if err != nil {
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
	if p.pin = pin; pin == nil {
		return nil
	}

	have, err := p.Pin()
	if err == nil && have != *pin {
		err = pin.mismatch(p.Manifest.Name, have)
	}
	return err
}

// samePin reports whether the pin of a plugin is unchanged since it was loaded.
func (l *loader) samePin(p *Plugin) bool {
	pin, err := ReadPin(l.cfg.PinDir, p.Manifest.Name)
	return err == nil && reflect.DeepEqual(pin, p.pin)
}

// sameGrant reports whether a plugin was loaded with what is granted to it now.
func (l *loader) sameGrant(p *Plugin) bool {
	return reflect.DeepEqual(p.Grant, l.cfg.Grants[p.Manifest.Name])
}

// pinnedAway reports whether the name of a plugin is now pinned to another one.
func (l *loader) pinnedAway(p *Plugin) bool {
	pin, err := ReadPin(l.cfg.PinDir, p.Manifest.Name)
	return err == nil && pin != nil && *pin != Pin{Digest: p.known(), Sidecar: p.beside}
}
