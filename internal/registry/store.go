package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/strictjson"
)

// Store keeps pulled plugins in a folder that only this user can write to:
//
//	blobs/sha256/HEX   manifests and modules, named as in an OCI image layout
//	refs/HEX.json      an [Artifact], named after the SHA-256 of its source
//
// A file that has its final name is complete. The store verifies content whenever it is
// read. Several processes can use the folder at once.
type Store struct{ dir string }

// NewStore returns the store in a folder. The folder need not exist yet.
func NewStore(dir string) *Store { return &Store{dir} }

// Refs returns the folder that holds the references. It changes whenever a pull changes a
// reference.
func (s *Store) Refs() string { return filepath.Join(s.dir, "refs") }

func (s *Store) blob(d digest.Digest) string {
	return filepath.Join(s.dir, "blobs", string(d.Algorithm()), d.Encoded())
}

// ref returns the file for a reference.
func (s *Store) ref(source string) string {
	return filepath.Join(s.Refs(), digest.FromString(source).Encoded()+".json")
}

// Find returns the artifact that was last pulled for a reference. If the reference has a
// digest, Find ignores its tag. If the reference was never pulled, the error matches
// [ErrNotStored].
func (s *Store) Find(ref Reference) (Artifact, error) {
	a, err := s.lookUp(ref)
	if err != nil {
		return Artifact{}, &Error{ref.String(), err}
	}
	return a, nil
}

func (s *Store) lookUp(ref Reference) (Artifact, error) {
	a, err := s.find(ref.stored().String())
	if err == nil && ref.Digest != "" && a.Digest != ref.Digest {
		err = fmt.Errorf("%w: it names another digest: run toolhost pull", ErrDamaged)
	}
	return a, err
}

func (s *Store) find(source string) (Artifact, error) {
	a, err := s.readRef(s.ref(source))
	if err == nil && a.Source != source {
		err = fmt.Errorf("%w: the entry is about %.200q: run toolhost pull", ErrDamaged, a.Source)
	}
	return a, err
}

// readRef reads a reference's file.
func (s *Store) readRef(file string) (a Artifact, err error) {
	if err := s.check(); err != nil {
		return a, err
	}
	data, err := owned.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return a, fmt.Errorf("%w: run toolhost pull", ErrNotStored)
	}
	if err != nil {
		return a, err
	}
	if err := strictjson.Decode(data, &a); err != nil || slices.ContainsFunc(a.contents(), func(d digest.Digest) bool { return !isSHA256(d) }) {
		return a, fmt.Errorf("%w: %s is not an entry that this version can read: run toolhost pull", ErrDamaged, file)
	}
	return a, nil
}

// check refuses a folder that others can write to.
func (s *Store) check() error {
	err := owned.Folder(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a missing folder has no content either
	}
	return err
}

// Module returns the verified module of an artifact. If the module is missing or has been
// changed, the error matches [ErrDamaged].
func (s *Store) Module(a Artifact) ([]byte, error) {
	wasm, err := s.content(a.Module)
	if err != nil {
		return nil, &Error{a.Source, err}
	}
	return wasm, nil
}

// content is like Read, for content that an artifact refers to.
func (s *Store) content(d digest.Digest) ([]byte, error) {
	data, err := s.Read(d)
	if errors.Is(err, ErrNotStored) {
		err = fmt.Errorf("%w: %s is missing: run toolhost pull", ErrDamaged, d)
	}
	return data, err
}

// Read returns the content that has the given digest, after verifying it. The error matches
// [ErrNotStored] or [ErrDamaged].
func (s *Store) Read(d digest.Digest) ([]byte, error) {
	if !isSHA256(d) {
		return nil, fmt.Errorf("%w: %.80q", ErrNotStored, d)
	}
	data, err := owned.ReadFile(s.blob(d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s", ErrNotStored, d)
	case err != nil:
		return nil, err
	}
	if have := digest.FromBytes(data); have != d {
		return nil, fmt.Errorf("%w: the file of %s has the content of %s: run toolhost pull", ErrDamaged, d, have)
	}
	return data, nil
}

// write stores content by its digest, unless the store already has it intact.
func (s *Store) write(data []byte) error {
	d := digest.FromBytes(data)
	if _, err := s.Read(d); err == nil {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	return owned.WriteFile(s.blob(d), data)
}

// complete reports whether the store has all the content of an artifact.
func (s *Store) complete(a Artifact) bool {
	return !slices.ContainsFunc(a.contents(), func(d digest.Digest) bool {
		_, err := os.Stat(s.blob(d))
		return err != nil
	})
}

// Name makes Find return an artifact for a reference in the same repository, such as a tag
// that now names it. For a reference with a digest it does nothing.
func (s *Store) Name(ref Reference, a Artifact) error {
	if ref.Digest != "" {
		return nil
	}
	a.Source = ref.String()
	return s.name(a)
}

// name makes Find return an artifact for its source.
func (s *Store) name(a Artifact) error {
	if had, err := s.find(a.Source); err == nil && reflect.DeepEqual(had, a) {
		return nil
	}
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return owned.WriteFile(s.ref(a.Source), append(data, '\n'))
}

// Artifacts returns all pulled artifacts except damaged ones, sorted by source.
func (s *Store) Artifacts() ([]Artifact, error) {
	entries, err := os.ReadDir(s.Refs())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Artifact
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") {
			if a, err := s.readRef(filepath.Join(s.Refs(), e.Name())); err == nil {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, func(a, b Artifact) int { return strings.Compare(a.Source, b.Source) })
	return all, nil
}
