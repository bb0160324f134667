package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/owned"
	wasmstate "github.com/toolhost/toolhost/internal/snapshot"
)

// refusals remember which modules cannot be compiled, by digest, so that nobody
// spends the time again: not the next call, nor the next process. What could not
// be compiled for another reason than the module is not remembered.
type refusals struct {
	dir       string // empty keeps them in memory only
	memory    int64  // the limits that hold now
	processor time.Duration

	mu    sync.Mutex
	known map[string]error
}

// refusalsFolder is the folder of refusals within Config.CacheDir.
const refusalsFolder = "refused"

// maxRefusals is how many are kept, in memory and in the folder. They are small:
// the bound is there for somebody who changes a file again and again.
const maxRefusals = 4096

func newRefusals(code *codeCache, memory int64, processor time.Duration) *refusals {
	r := &refusals{memory: memory, processor: processor, known: map[string]error{}}
	if code != nil && !code.folder.paused() {
		r.dir = filepath.Join(code.folder.dir, refusalsFolder)
	}
	return r
}

// refusal is a compiler's error as a file has it.
type refusal struct {
	Version   string        `json:"version"` // of what refused it
	Part      string        `json:"part,omitempty"`
	Refused   string        `json:"refused,omitempty"`
	Crashed   string        `json:"crashed,omitempty"`
	Exceeded  string        `json:"exceeded,omitempty"` // memory or processor
	Memory    int64         `json:"memory"`             // the limits there were
	Processor time.Duration `json:"processor"`
}

// refusalVersion names all that decides whether a module is refused, but for the
// limits.
func refusalVersion() string {
	return fmt.Sprintf("rewriter %d, state %d, features %d, runtime %s", fuel.RewriterVersion, wasmstate.Version, compiler.Features, compiler.Runtime())
}

// remember notes why a module cannot be compiled, if that is the module's fault
// and would happen again.
func (r *refusals) remember(digest string, err error) {
	f := refusal{Version: refusalVersion(), Memory: r.memory, Processor: r.processor}
	var (
		refused *compiler.RefusedError
		taken   *compiler.LimitError
		crash   *compiler.CrashError
	)
	switch {
	case errors.As(err, &refused):
		f.Part, f.Refused = refused.Part, refused.Err.Error()
	case errors.As(err, &taken) && taken.Memory > 0:
		f.Exceeded = "memory"
	case errors.As(err, &taken) && taken.Processor > 0:
		f.Exceeded = "processor"
	case errors.As(err, &crash):
		f.Crashed = crash.Reason
	default:
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxRefusals {
		clear(r.known)
	}
	r.known[digest] = err
	if r.dir != "" {
		_ = r.write(digest, f) // else the next process finds out for itself
	}
}

// write stores a refusal. A folder that is full is emptied.
func (r *refusals) write(digest string, f refusal) error {
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
	temp, err := os.CreateTemp(r.dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), filepath.Join(r.dir, digest))
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}

// recall returns why a module could not be compiled before, nil if it was not
// tried, or if other limits hold now.
func (r *refusals) recall(digest string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.known[digest]; err != nil || r.dir == "" {
		return err
	}

	data, err := owned.ReadFile(filepath.Join(r.dir, digest))
	if err != nil {
		return nil
	}
	var f refusal
	if json.Unmarshal(data, &f) != nil || f.Version != refusalVersion() {
		return nil
	}
	return f.error(r.memory, r.processor)
}

// error is the compiler's error. It is nil if another limit than today's was
// exceeded.
func (f refusal) error(memory int64, processor time.Duration) error {
	switch {
	case f.Refused != "":
		return &compiler.RefusedError{Part: f.Part, Err: errors.New(f.Refused)}
	case f.Memory != memory, f.Processor != processor:
		return nil
	case f.Exceeded == "memory":
		return &compiler.LimitError{Memory: memory}
	case f.Exceeded == "processor":
		return &compiler.LimitError{Processor: processor}
	case f.Crashed != "":
		return &compiler.CrashError{Reason: f.Crashed}
	}
	return nil
}
