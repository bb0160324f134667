package server

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

// A shelf stores versions of plugins with the runs, for all hosts that share the engine.
// A version is a scope of values: an entry for each file, and the pieces of its content,
// under keys that no other upload uses.
type shelf struct {
	values engine.Values
}

const (
	shelfPrefix = "version/"     // prefix of the names of scopes, before the digest
	piecePrefix = "piece/"       // prefix of the keys of pieces
	shelfPiece  = 1 << 20        // bytes of a piece
	shelfFresh  = versionsKept   // age after which an entry in use is written again
	shelfSpare  = 2 * shelfFresh // age after which an entry that is not needed is removed
)

// A shelfEntry describes a file.
type shelfEntry struct {
	Upload string `json:"upload"` // names the pieces
	Pieces int    `json:"pieces"`
	Sum    []byte `json:"sum"` // SHA-256
}

func (e shelfEntry) piece(n int) string { return fmt.Sprintf("%s%s/%06d", piecePrefix, e.Upload, n) }

func shelfScope(digest string) engine.Scope { return engine.Scope{Name: shelfPrefix + digest} }

// keep stores a file of a version, unless it is there. It stays for a while, even if no
// run needs it yet.
func (s shelf) keep(ctx context.Context, digest, name string, content func() ([]byte, error)) error {
	scope := shelfScope(digest)
	found, err := s.values.Value(ctx, scope, name)
	switch {
	case err == nil && time.Since(found.At) < shelfFresh:
		return nil
	case err == nil:
		_, err = s.values.PutValue(ctx, scope, engine.Value{Key: name, Data: found.Data, Version: found.Version}, engine.ValueLimit{})
		if !errors.Is(err, engine.ErrConflict) { // else it was removed, or written by another host
			return err
		}
		return s.keep(ctx, digest, name, content)
	case !errors.Is(err, engine.ErrNotFound):
		return err
	}

	data, err := content()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	entry := shelfEntry{Upload: rand.Text(), Sum: sum[:]}
	for piece := range slices.Chunk(data, shelfPiece) {
		if _, err := s.values.PutValue(ctx, scope, engine.Value{Key: entry.piece(entry.Pieces), Data: piece}, engine.ValueLimit{}); err != nil {
			return errors.Join(err, s.dropPieces(ctx, digest, entry))
		}
		entry.Pieces++
	}

	text, err := json.Marshal(entry)
	if err == nil {
		_, err = s.values.PutValue(ctx, scope, engine.Value{Key: name, Data: text}, engine.ValueLimit{})
	}
	if errors.Is(err, engine.ErrConflict) { // another host was faster
		return s.dropPieces(ctx, digest, entry)
	}
	return err
}

// names returns the files of a version.
func (s shelf) names(ctx context.Context, digest string) (names []string, err error) {
	all, err := s.values.Values(ctx, shelfScope(digest), "", 0, false)
	for _, v := range all {
		if !strings.HasPrefix(v.Key, piecePrefix) && filepath.IsLocal(v.Key) && filepath.Base(v.Key) == v.Key {
			names = append(names, v.Key)
		}
	}
	return names, err
}

// file returns a file of a version. The error matches [fs.ErrNotExist] if it is missing.
func (s shelf) file(ctx context.Context, digest, name string) (data []byte, err error) {
	found, err := s.values.Value(ctx, shelfScope(digest), name)
	if err != nil {
		return nil, missingFile(err)
	}
	entry, err := entryOf(found)
	for n := 0; err == nil && n < entry.Pieces; n++ {
		var piece engine.Value
		piece, err = s.values.Value(ctx, shelfScope(digest), entry.piece(n))
		data = append(data, piece.Data...)
	}
	if err != nil {
		return nil, missingFile(err)
	}
	if sum := sha256.Sum256(data); !slices.Equal(sum[:], entry.Sum) {
		return nil, fmt.Errorf("%s of the version %s is damaged in the database", name, digest)
	}
	return data, nil
}

func missingFile(err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

func entryOf(v engine.Value) (entry shelfEntry, err error) {
	if err := json.Unmarshal(v.Data, &entry); err != nil {
		return entry, fmt.Errorf("%s in the database: %w", v.Key, err)
	}
	return entry, nil
}

// forget removes the versions that no run needs and that nobody has used for a while. A
// host that uses one meanwhile writes its entries again, which keeps them.
func (s shelf) forget(ctx context.Context, needed func() (map[string]bool, error)) error {
	scopes, err := s.values.Scopes(ctx, "", shelfPrefix)
	if err != nil || len(scopes) == 0 {
		return err
	}
	old := map[string][]engine.Value{} // entries by digest
	for _, scope := range scopes {
		if scope.Session != "" || time.Since(scope.Changed) < shelfSpare {
			continue
		}
		all, err := s.values.Values(ctx, scope.Scope, "", 0, false)
		if err != nil {
			return err
		}
		old[strings.TrimPrefix(scope.Name, shelfPrefix)] = all
	}

	needs, err := needed()
	if err != nil {
		return err
	}
	for digest, all := range old {
		if !needs[digest] {
			err = errors.Join(err, s.drop(ctx, digest, all))
		}
	}
	return err
}

// drop removes values that were read, entries first.
func (s shelf) drop(ctx context.Context, digest string, all []engine.Value) (err error) {
	isPiece := func(v engine.Value) bool { return strings.HasPrefix(v.Key, piecePrefix) }
	for _, pieces := range []bool{false, true} {
		for _, v := range all {
			if isPiece(v) != pieces {
				continue
			}
			err := s.values.DeleteValue(ctx, shelfScope(digest), v.Key, v.Version)
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

func (s shelf) dropPieces(ctx context.Context, digest string, entry shelfEntry) (err error) {
	for n := range entry.Pieces {
		if e := s.values.DeleteValue(ctx, shelfScope(digest), entry.piece(n), engine.AnyVersion); !errors.Is(e, engine.ErrNotFound) {
			err = errors.Join(err, e)
		}
	}
	return err
}
