package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/toolhost/toolhost/internal/signature"
)

// Signer identifies the signer of a plugin. The zero Signer means that the plugin has no
// signature by anyone the operator trusts.
type Signer = signature.Signer

// SignedFile is a file of a plugin whose signature is verified.
type SignedFile = signature.File

// Verifier decides whose signatures count, and which plugins need one. It is safe for
// concurrent use.
type Verifier interface {
	// Signer returns the signer of a plugin's files: its module, and its sidecar if it
	// has one. read reads a file next to them, such as plugin.wasm.minisig. source is the
	// path of the plugin's folder. An error refuses the plugin. No code of the plugin has
	// run yet.
	Signer(source string, files []SignedFile, read func(name string) ([]byte, error)) (Signer, error)
	// Check returns the signer if it is trusted with a plugin of that name and source,
	// else the zero Signer. An error refuses the plugin.
	Check(plugin, source string, s Signer) (Signer, error)
}

// verifies reports whether the signature of a plugin counts. Plugins that come with
// the program need none.
func (l *loader) verifies(p *Plugin) bool { return l.cfg.Verifier != nil && !p.Pack && !p.builtIn }

// verify determines who signed a module and its sidecar.
func (l *loader) verify(p *Plugin, wasm []byte, side sidecarFile) (err error) {
	if !l.verifies(p) {
		return nil
	}
	files := []SignedFile{{Name: p.name, Data: wasm}}
	if side.name != "" {
		files = append(files, SignedFile{Name: side.name, Data: side.data})
	}

	found := p.signatureFiles(side.name)
	p.signed, p.verifier = found.digest(), l.cfg.Verifier
	p.Signer, err = l.cfg.Verifier.Signer(p.source, files, found.read)
	return err
}

// sameSignatures reports whether the signatures of a plugin are unchanged since it was
// loaded.
func (l *loader) sameSignatures(p *Plugin, sidecar string) bool {
	return !l.verifies(p) || p.signatureFiles(sidecar).digest() == p.signed
}

// signatureFiles holds the signatures next to a plugin, by name, and the errors from reading them.
type signatureFiles struct {
	files map[string][]byte
	errs  map[string]error
}

func (p *Plugin) signatureFiles(sidecar string) signatureFiles {
	s := signatureFiles{files: map[string][]byte{}, errs: map[string]error{}}
	for _, signed := range []string{p.name, sidecar} {
		for _, ending := range signature.Endings {
			name := signed + ending
			if signed == "" {
				continue
			}
			data, _, err := readFile(p.folder, name, signature.MaxSize)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			s.files[name], s.errs[name] = data, err
		}
	}
	return s
}

func (s signatureFiles) read(name string) ([]byte, error) {
	data, ok := s.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return data, s.errs[name]
}

func (s signatureFiles) digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		fmt.Fprintf(h, "%q %q %v\n", name, s.files[name], s.errs[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}
