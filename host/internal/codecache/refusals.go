package codecache

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/internal/exceptions"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/snapshot"
)

// Refusals record which modules cannot be compiled, by digest, so that neither the next
// call nor the next process spends time on them again. They only record failures that are
// the module's fault. They are safe for concurrent use.
type Refusals struct {
	dir string // empty keeps them in memory only

	mu    sync.Mutex
	known map[string]refusal
}

// refusalsFolder is the folder of refusals within Config.Dir.
const refusalsFolder = "refused"

// maxRefusals is how many refusals are kept, in memory and in the folder. They
// are small; the limit is for an author who keeps changing a file.
const maxRefusals = 4096

// Refusals returns the refusals recorded in the cache's folder, if it has one.
func (c *Cache) Refusals() *Refusals {
	r := &Refusals{known: map[string]refusal{}}
	if c.Stores() {
		r.dir = filepath.Join(c.Dir, refusalsFolder)
	}
	return r
}

// refusal is the JSON form of a compiler's error in a file.
type refusal struct {
	Version string         `json:"version"` // version of everything that decides whether a module is refused
	Why     compiler.Error `json:"why"`
	Limits                 // limits at that time
}

// Limits are the limits for compiling one module.
type Limits struct {
	Memory    int64         `json:"memory"`    // bytes
	Processor time.Duration `json:"processor"` // processor time
}

// refusalVersion names everything that decides whether a module is refused,
// except for the limits.
func refusalVersion() string {
	return fmt.Sprintf("exceptions %d, rewriter %d, state %d, bounds %d, features %d, runtime %s",
		exceptions.Version, fuel.RewriterVersion, snapshot.Version, compiler.BoundsVersion, compiler.Features, compiler.Runtime())
}

// Remember records why a module cannot be compiled, if that is the module's
// fault and would happen again.
func (r *Refusals) Remember(digest string, err error, limits Limits) {
	why, ok := errors.AsType[*compiler.Error](err)
	if !ok {
		return
	}
	f := refusal{refusalVersion(), *why, limits}

	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxRefusals {
		clear(r.known)
	}
	r.known[digest] = f
	if r.dir != "" && why.Kind != compiler.Wall { // that depends as much on the machine as on the module
		_ = r.write(digest, f) // otherwise the next process finds out again
	}
}

// write stores a refusal. It empties a full folder first.
func (r *Refusals) write(digest string, f refusal) error {
	if err := ownFolders(filepath.Dir(r.dir), r.dir); err != nil {
		return err
	}
	if all, err := os.ReadDir(r.dir); err == nil && len(all) >= maxRefusals {
		for _, e := range all {
			_ = os.Remove(filepath.Join(r.dir, e.Name()))
		}
	}

	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return owned.WriteFile(filepath.Join(r.dir, digest), data)
}

// Recall returns why compiling a module failed earlier. It returns nil if it did not fail,
// or might succeed with these limits.
func (r *Refusals) Recall(digest string, limits Limits) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f, ok := r.known[digest]; ok {
		return f.error(limits)
	}
	if r.dir == "" {
		return nil
	}

	data, err := owned.ReadFile(filepath.Join(r.dir, digest))
	var f refusal
	if err != nil || json.Unmarshal(data, &f) != nil || f.Version != refusalVersion() || f.Why.Reason == "" {
		return nil
	}
	return f.error(limits)
}

// error returns the compiler's error, or nil if limits are higher than those of
// that attempt.
func (f refusal) error(limits Limits) error {
	if f.Why.Kind != compiler.Refused && (f.Memory < limits.Memory || f.Processor < limits.Processor) {
		return nil
	}
	return &f.Why
}
