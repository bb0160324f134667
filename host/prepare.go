package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/internal/fuel"
	wasmstate "github.com/toolhost/toolhost/internal/snapshot"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// prepared is a plugin as a runtime has it.
type prepared struct {
	*program // Wasm is as short as the runtime needs it
	compiled wazero.CompiledModule
	runtime  wazero.Runtime
	found    bool // in the cache
}

// program is a plugin ready for the runtime.
type program struct {
	wasmstate.Program
	Beside uint64 // bytes that each instance takes beside its memory
}

// prepare rewrites a plugin and compiles it, unless the cache has what comes of
// that. Nothing that is wrong with the cache fails it.
func (h *Host) prepare(ctx context.Context, info *Info, wasm []byte) (*prepared, error) {
	c := h.code
	if c == nil || !c.open(ctx) {
		c = nil
	} else if p := c.find(info.Digest); p != nil {
		p.found = true
		return p, nil
	}
	program, err := rewrite(wasm)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	if c != nil && !c.folder.paused() {
		switch err := c.store(ctx, info.Digest, program); {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, errRefused):
			return nil, err
		case err != nil:
			c.folder.failed()
			h.log.Warn("compiled code is not kept", "digest", info.Digest, "reason", err)
		default:
			if p := c.find(info.Digest); p != nil {
				return p, nil
			}
		}
	}
	compiled, err := h.engine.compile(ctx, program.Wasm)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	program.Wasm = nil
	return &prepared{program: program, compiled: compiled, runtime: h.engine}, nil
}

// errRefused: the runtime does not compile the module.
var errRefused = errors.New("it does not compile")

// rewrite makes a plugin ready for the runtime: bounded, metered, and with its
// state where the host can put it back.
func rewrite(wasm []byte) (*program, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	has := countBeside(m)
	if err := has.check(); err != nil {
		return nil, err
	}
	metered, err := fuel.Rewrite(wasm)
	if err != nil {
		return nil, err
	}
	p, err := wasmstate.Prepare(metered.Wasm)
	if err != nil {
		return nil, err
	}
	if err := checkComplexity(p.Wasm); err != nil {
		return nil, err
	}
	return &program{*p, has.bytes(&metered.Stats)}, nil
}

// outlineSection is a custom section with the digest of the module that an
// outline is of. It is what makes the runtime tell their code apart.
const outlineSection = "toolhost.outline"

// outline is a module with bodies that only trap. What a runtime needs to load
// the code of the module itself, and to make instances, is all in it: checking
// the bodies again would take as long as all the rest.
func outline(wasm []byte) ([]byte, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	trap := wasmbin.Code{Body: []byte{byte(wasmbin.OpUnreachable), byte(wasmbin.OpEnd)}}
	for i := range m.Codes {
		m.Codes[i] = trap
	}
	names, named := m.Custom("name")
	m.Customs = nil
	if named { // for the stacks of traps
		m.Customs = append(m.Customs, wasmbin.NewCustom("name", names))
	}
	digest := sha256.Sum256(wasm)
	m.Customs = append(m.Customs, wasmbin.NewCustom(outlineSection, digest[:]))
	return m.Encode(), nil
}

// preparedFormat changes whenever entries of the cache are laid out otherwise.
const preparedFormat = 2

// keyLen is the length of a key.
const keyLen = 32

// key names the entry of a plugin: it changes with all that changes what comes
// of it. Where wazero looks has its version, the system and the processor; the
// features of the processor are in the names of the files, which are wazero's.
func (c *codeCache) key(digest string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s: format %d, rewriter %d, state %d, features %d, runtime %s",
		digest, preparedFormat, fuel.RewriterVersion, wasmstate.Version, features, filepath.Base(c.where)))
	return hex.EncodeToString(sum[:keyLen/2])
}

// preparedName is the file of an entry that is no code.
const preparedName = "module"

// find loads a plugin from the cache. It is nil if it is not there.
func (c *codeCache) find(digest string) *prepared {
	key := c.key(digest)
	var program *program
	var code []stored
	for _, file := range c.folder.list(key) {
		if file.name != preparedName {
			code = append(code, file)
		} else if data, err := os.ReadFile(file.path); err == nil {
			program = decodeProgram(data)
		}
	}
	if program == nil || len(code) == 0 {
		return nil
	}
	compiled := c.load(program.Wasm, code)
	if compiled == nil {
		return nil
	}
	c.folder.used(key)
	program.Wasm = nil
	return &prepared{program: program, compiled: compiled, runtime: c.loader}
}

// store compiles a rewritten plugin and keeps what comes of it.
func (c *codeCache) store(ctx context.Context, digest string, program *program) error {
	kept := *program
	var err error
	if kept.Wasm, err = outline(program.Wasm); err != nil {
		return err
	}
	if err := ownFolders(c.onDesk()...); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(c.desk, "new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	name, code, err := c.build(ctx, temp, kept.Wasm, program.Wasm)
	if err != nil {
		return err
	}
	module := filepath.Join(temp, preparedName)
	if err := os.WriteFile(module, encodeProgram(&kept), 0o600); err != nil {
		return err
	}
	key := c.key(digest)
	if err := errors.Join(c.folder.put(key, preparedName, module), c.folder.put(key, name, code)); err != nil {
		return err
	}
	c.folder.bound()
	return nil
}

// build compiles a module and returns the file with its code, and the name
// under which the runtime looks for the code of the outline.
func (c *codeCache) build(ctx context.Context, temp string, outline, wasm []byte) (name, code string, err error) {
	cache, where, err := wazeroCache(temp)
	if err != nil {
		return "", "", err
	}
	e := &engine{wazero.NewRuntimeWithConfig(ctx, compiler().WithCompilationCache(cache)), cache}
	defer e.close(ctx)
	var files [2]string
	for i, module := range [][]byte{outline, wasm} { // where the one is refused the other is
		if _, err := e.compile(ctx, module); err != nil {
			return "", "", refusal(err)
		}
		made, err := os.ReadDir(where)
		if err == nil && len(made) != 1 {
			err = errors.New("the runtime made no file of its code")
		}
		if err != nil {
			return "", "", err
		}
		files[i] = filepath.Join(temp, made[0].Name())
		if err := os.Rename(filepath.Join(where, made[0].Name()), files[i]); err != nil {
			return "", "", err
		}
	}
	return filepath.Base(files[0]), files[1], nil
}

// refusal marks an error of a compilation that is the module's fault, and not
// that of the folder its code was to be written to.
func refusal(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) {
		return err
	}
	return fmt.Errorf("%w: %w", errRefused, err)
}

// encodeProgram is a program as a file has it: the length of what stands before
// the bytes of the module and of the image, and that as JSON.
func encodeProgram(p *program) []byte {
	head := *p
	head.Wasm, head.Image = nil, nil
	text, _ := json.Marshal(programHead{head, len(p.Wasm), len(p.Image)}) // numbers and texts only
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	return append(append(append(out, text...), p.Wasm...), p.Image...)
}

type programHead struct {
	program
	WasmSize, ImageSize int
}

// decodeProgram is nil where data is none. The program is made of views into it.
func decodeProgram(data []byte) *program {
	if len(data) < 4 {
		return nil
	}
	n := int(binary.LittleEndian.Uint32(data))
	data = data[4:]
	var head programHead
	if n > len(data) || json.NewDecoder(bytes.NewReader(data[:n])).Decode(&head) != nil {
		return nil
	}
	data = data[n:]
	if head.WasmSize < 0 || head.WasmSize > len(data) || head.ImageSize != len(data)-head.WasmSize {
		return nil
	}
	p := head.program
	p.Wasm = data[:head.WasmSize:head.WasmSize]
	if head.ImageSize > 0 {
		p.Image = data[head.WasmSize:]
	}
	return &p
}
