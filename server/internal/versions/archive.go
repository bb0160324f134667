package versions

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// An archive stores versions with the runs, for all hosts that share the engine. A version
// is a scope of values: an entry for each file, and the pieces of its content, under keys
// that no other upload uses.
type archive struct{ values engine.Values }

const (
	scopePrefix = "version/"   // prefix of the names of scopes, before the digest
	piecePrefix = "piece/"     // prefix of the keys of pieces
	pieceSize   = 1 << 20      // size of a piece, in bytes
	freshFor    = pruneEvery   // age after which an entry in use is written again
	spareAfter  = 2 * freshFor // age after which an entry that no run needs is removed
)

// An entry describes a file.
type entry struct {
	Upload string `json:"upload"` // prefix of the keys of its pieces
	Pieces int    `json:"pieces"`
	Sum    []byte `json:"sum"` // SHA-256
}

func (e entry) piece(n int) string { return fmt.Sprintf("%s%s/%06d", piecePrefix, e.Upload, n) }

func scopeOf(digest string) engine.Scope { return engine.Scope{Name: scopePrefix + digest} }

// put stores a file of a version, unless it is there. It stays for a while, even if no run
// needs it yet.
func (a archive) put(ctx context.Context, digest, name string, content func() ([]byte, error)) error {
	scope := scopeOf(digest)
	found, err := a.values.Value(ctx, scope, name)
	switch {
	case err == nil && time.Since(found.At) < freshFor:
		return nil
	case err == nil:
		_, err = a.values.PutValue(ctx, scope, engine.Value{Key: name, Data: found.Data, Version: found.Version}, engine.ValueLimit{})
		if !errors.Is(err, engine.ErrConflict) { // else it was removed, or written by another host
			return err
		}
		return a.put(ctx, digest, name, content)
	case !errors.Is(err, engine.ErrNotFound):
		return err
	}

	data, err := content()
	if err != nil {
		return err
	}
	return a.upload(ctx, scope, name, data)
}

// upload stores the pieces of a file, and then its entry.
func (a archive) upload(ctx context.Context, scope engine.Scope, name string, data []byte) error {
	sum := sha256.Sum256(data)
	e := entry{Upload: rand.Text(), Sum: sum[:]}
	for piece := range slices.Chunk(data, pieceSize) {
		if _, err := a.values.PutValue(ctx, scope, engine.Value{Key: e.piece(e.Pieces), Data: piece}, engine.ValueLimit{}); err != nil {
			return errors.Join(err, a.removePieces(ctx, scope, e))
		}
		e.Pieces++
	}

	text, _ := json.Marshal(e) // numbers and text
	_, err := a.values.PutValue(ctx, scope, engine.Value{Key: name, Data: text}, engine.ValueLimit{})
	if errors.Is(err, engine.ErrConflict) { // another host was faster
		return a.removePieces(ctx, scope, e)
	}
	return err
}

// list returns the names of the files of a version.
func (a archive) list(ctx context.Context, digest string) (names []string, err error) {
	all, err := a.values.Values(ctx, scopeOf(digest), "", 0, false)
	for _, v := range all {
		if !isPiece(v) && filepath.IsLocal(v.Key) && filepath.Base(v.Key) == v.Key {
			names = append(names, v.Key)
		}
	}
	return names, err
}

func isPiece(v engine.Value) bool { return strings.HasPrefix(v.Key, piecePrefix) }

// get returns a file of a version. The error matches [fs.ErrNotExist] if it is missing.
func (a archive) get(ctx context.Context, digest, name string) ([]byte, error) {
	data, err := a.download(ctx, scopeOf(digest), name)
	if errors.Is(err, engine.ErrNotFound) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return data, err
}

// download joins the pieces of a file.
func (a archive) download(ctx context.Context, scope engine.Scope, name string) (data []byte, err error) {
	found, err := a.values.Value(ctx, scope, name)
	if err != nil {
		return nil, err
	}
	var e entry
	if err := json.Unmarshal(found.Data, &e); err != nil {
		return nil, fmt.Errorf("%s in the database: %w", name, err)
	}

	for n := range e.Pieces {
		piece, err := a.values.Value(ctx, scope, e.piece(n))
		if err != nil {
			return nil, err
		}
		data = append(data, piece.Data...)
	}
	if sum := sha256.Sum256(data); !slices.Equal(sum[:], e.Sum) {
		return nil, fmt.Errorf("%s of the version %s is damaged in the database", name, strings.TrimPrefix(scope.Name, scopePrefix))
	}
	return data, nil
}

// prune removes the versions that no run needs and that nobody has used for a while. A host
// that uses one in the meantime writes its entries again, which keeps them.
func (a archive) prune(ctx context.Context, needed func(context.Context) (map[string]bool, error)) error {
	scopes, err := a.values.Scopes(ctx, "", scopePrefix)
	if err != nil || len(scopes) == 0 {
		return err
	}
	old := map[string][]engine.Value{} // by digest
	for _, scope := range scopes {
		if scope.Session != "" || time.Since(scope.Changed) < spareAfter {
			continue
		}
		all, err := a.values.Values(ctx, scope.Scope, "", 0, false)
		if err != nil {
			return err
		}
		old[strings.TrimPrefix(scope.Name, scopePrefix)] = all
	}

	digests, err := needed(ctx)
	if err != nil {
		return err
	}
	for digest, all := range old {
		if !digests[digest] {
			err = errors.Join(err, a.remove(ctx, scopeOf(digest), all))
		}
	}
	return err
}

// remove removes values that were read, entries first.
func (a archive) remove(ctx context.Context, scope engine.Scope, all []engine.Value) error {
	for _, pieces := range []bool{false, true} {
		for _, v := range all {
			if isPiece(v) != pieces {
				continue
			}
			err := a.values.DeleteValue(ctx, scope, v.Key, v.Version)
			if errors.Is(err, engine.ErrConflict) { // it is used again, and so are the pieces
				return nil
			}
			if err != nil && !errors.Is(err, engine.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

// removePieces removes the pieces of an upload that has no entry.
func (a archive) removePieces(ctx context.Context, scope engine.Scope, e entry) (err error) {
	for n := range e.Pieces {
		if failed := a.values.DeleteValue(ctx, scope, e.piece(n), engine.AnyVersion); !errors.Is(failed, engine.ErrNotFound) {
			err = errors.Join(err, failed)
		}
	}
	return err
}
