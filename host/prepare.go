package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/owned"
	wasmstate "github.com/toolhost/toolhost/internal/snapshot"
)

// CompileOptions say how one module is compiled. The zero value suits a module
// that somebody waits for.
type CompileOptions struct {
	// Interpret runs the module in an interpreter. No compiler sees it, and its
	// calls are some 10 to 100 times slower. Functions with more than 1,000 locals
	// are refused, and calls may be nested 2,000 deep. What the interpreter keeps
	// of it counts for Config.Memory until the module is closed.
	Interpret bool
	// LowPriority has the compiler process give way to other work, where the
	// system can do that. Nothing changes without Config.Compiler.
	LowPriority bool
	// Time is how much processor time compiling may take, if that is less than
	// Config.CompileTime. 0 is the latter. Nothing changes without Config.Compiler.
	Time time.Duration
}

// prepared is a plugin as a runtime has it.
type prepared struct {
	*compiler.Program // Wasm is as short as the runtime needs it
	compiled          wazero.CompiledModule
	runtime           wazero.Runtime
	found             bool   // in the cache
	free              func() // gives back what is this module's alone; nil if there is nothing
}

// prepare rewrites a plugin and compiles it, unless the cache has what comes of
// that. Nothing that is wrong with the cache fails it. A module that could not
// be compiled before is refused for the same reason, and not tried again.
func (h *Host) prepare(ctx context.Context, info *Info, wasm []byte, opts CompileOptions) (*prepared, error) {
	if opts.Interpret {
		return h.interpreted(ctx, wasm, interpretable{maxInterpretedCode})
	}
	c := h.openCode(ctx)
	if p := c.find(info.Digest); p != nil {
		p.found = true
		return p, nil
	}
	limits := h.limits
	if opts.Time > 0 {
		limits.Processor = min(limits.Processor, opts.Time)
	}
	if err := h.refusals.recall(info.Digest, limits); err != nil {
		return nil, err
	}

	p, err := h.build(ctx, c, info.Digest, wasm, opts, limits)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		h.refusals.remember(info.Digest, err, limits)
	}
	return p, err
}

// openCode returns the store of compiled code, nil if there is none.
func (h *Host) openCode(ctx context.Context) *codeCache {
	if h.code == nil || !h.code.open(ctx) {
		return nil
	}
	return h.code
}

// build compiles a plugin anew: in a child process where the host has one, and
// else in this one.
func (h *Host) build(ctx context.Context, c *codeCache, digest string, wasm []byte, opts CompileOptions, limits compileLimits) (*prepared, error) {
	if h.compiler != "" {
		if c == nil {
			return nil, errNoCodeFolder
		}
		return h.buildInChild(ctx, c, digest, wasm, opts.LowPriority, limits)
	}

	if c != nil && !c.folder.paused() {
		p, err := c.store(digest, func(dir string) (compiler.Output, error) { return compiler.Build(ctx, dir, wasm) })
		var refused *compiler.RefusedError
		if err == nil || ctx.Err() != nil || errors.As(err, &refused) {
			return p, err
		}
		c.folder.failed()
		h.log.Warn("compiled code is not kept", "digest", digest, "reason", err)
	}
	return h.buildInMemory(ctx, wasm)
}

// errNoCodeFolder is why a child process cannot compile.
var errNoCodeFolder = errors.New("compiled code cannot be stored anywhere: see the log")

// buildsAtOnce is how many child processes compile at a time. Each of them uses
// all processors; the second is there so that a module that takes long does not
// hold up all others.
const buildsAtOnce = 2

// buildInChild compiles in a child process, once there is room for one.
func (h *Host) buildInChild(ctx context.Context, c *codeCache, digest string, wasm []byte, low bool, limits compileLimits) (*prepared, error) {
	select {
	case h.building <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-h.building }()

	child := compiler.Process{Path: h.compiler, Memory: limits.Memory, Processor: limits.Processor}
	return c.store(digest, func(dir string) (compiler.Output, error) { return child.Build(ctx, dir, wasm, low) })
}

// buildInMemory compiles into the memory of this process only.
func (h *Host) buildInMemory(ctx context.Context, wasm []byte) (*prepared, error) {
	program, err := compiler.Rewrite(wasm)
	if err != nil {
		return nil, err
	}
	compiled, err := h.engine.compile(ctx, program.Wasm)
	if err != nil {
		return nil, compiler.RefuseCompile(err)
	}
	program.Wasm = nil
	return &prepared{Program: program, compiled: compiled, runtime: h.engine}, nil
}

// preparedFormat changes whenever entries of the cache are laid out otherwise.
const preparedFormat = 3

// keyLen is the length of a key.
const keyLen = 32

// key names the entry of a plugin: it changes with all that changes what comes
// of it. Where wazero looks has its version, the system and the processor; the
// features of the processor are in the names of the files, which are wazero's.
func (c *codeCache) key(digest string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s: format %d, rewriter %d, state %d, features %d, runtime %s",
		digest, preparedFormat, fuel.RewriterVersion, wasmstate.Version, compiler.Features, filepath.Base(c.where)))
	return hex.EncodeToString(sum[:keyLen/2])
}

// preparedName is the file of an entry that is no code.
const preparedName = "module"

// find loads a plugin from the cache. It is nil if it is not there.
func (c *codeCache) find(digest string) *prepared {
	if c == nil || c.folder == nil {
		return nil
	}
	key := c.key(digest)
	var module string
	var code []stored
	for _, file := range c.folder.list(key) {
		if file.name == preparedName {
			module = file.path
		} else {
			code = append(code, file)
		}
	}

	p := c.loadFiles(module, code)
	if p != nil {
		c.folder.used(key)
	}
	return p
}

// loadFiles loads a plugin from the files of a build. It is nil if they are not
// what a build makes.
func (c *codeCache) loadFiles(module string, code []stored) *prepared {
	data, err := os.ReadFile(module)
	if err != nil || len(code) == 0 {
		return nil
	}
	program := compiler.Decode(data)
	if program == nil {
		return nil
	}
	compiled := c.load(program.Wasm, code)
	if compiled == nil {
		return nil
	}
	program.Wasm = nil
	return &prepared{Program: program, compiled: compiled, runtime: c.loader}
}

// store has a plugin built in a new folder, keeps what comes of it, if this host
// keeps code, and loads that.
func (c *codeCache) store(digest string, build func(dir string) (compiler.Output, error)) (*prepared, error) {
	if err := ownFolders(c.onDesk()...); err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp(c.desk, "new-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)

	out, err := build(temp)
	if err != nil {
		return nil, err
	}
	if c.folder == nil || c.folder.paused() {
		return c.loadMade(out)
	}
	key := c.key(digest)
	if err := errors.Join(c.folder.put(key, preparedName, out.Module), c.folder.put(key, out.Name, out.Code)); err != nil {
		return nil, err
	}
	c.folder.bound()
	p := c.find(digest)
	if p == nil { // another process has made room for its own code
		return nil, errors.New("the compiled code is gone from the cache")
	}
	return p, nil
}

// loadMade loads what a build made from where it is.
func (c *codeCache) loadMade(out compiler.Output) (*prepared, error) {
	for _, name := range []string{out.Module, out.Code} {
		info, err := os.Lstat(name)
		if err == nil {
			err = owned.File(name, info)
		}
		if err != nil {
			return nil, err
		}
	}

	p := c.loadFiles(out.Module, []stored{{path: out.Code, name: out.Name}})
	if p == nil {
		return nil, errors.New("the compiled code cannot be loaded")
	}
	return p, nil
}
