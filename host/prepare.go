package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolhost/toolhost/internal/fuel"
	wasmstate "github.com/toolhost/toolhost/internal/snapshot"
)

// prepare rewrites a checked module for the runtime, or finds it in the cache
// as this program has rewritten it before.
func (h *Host) prepare(info *Info, wasm []byte) (*wasmstate.Program, error) {
	key := preparedKey(info)
	if p := h.code.prepared(key); p != nil {
		return p, nil
	}
	bounded, err := boundTables(wasm)
	if err != nil {
		return nil, err
	}
	program, err := fuel.Rewrite(bounded)
	if err != nil {
		return nil, err
	}
	p, err := wasmstate.Prepare(program.Wasm)
	if err != nil {
		return nil, err
	}
	h.code.storePrepared(key, p)
	return p, nil
}

// preparedName stands where entries of compiled code have the name that wazero
// gives them.
const preparedName = "prepared"

// preparedKey names what comes of a module. Beside the versions of what
// rewrites it, which people may forget to change, it has which program did so.
func preparedKey(info *Info) string {
	program := "unknown"
	if name, err := os.Executable(); err == nil {
		if file, err := os.Stat(name); err == nil {
			program = fmt.Sprintf("%d %d", file.Size(), file.ModTime().UnixNano())
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %d %s", info.Digest, fuel.RewriterVersion, wasmstate.Version, maxEntries, program))
	return hex.EncodeToString(sum[:16]) + "-"
}

// prepared reads a rewritten module. It is nil if there is none, or what is
// there is not what its name says, which is removed.
func (c *codeCache) prepared(key string) *wasmstate.Program {
	if c == nil {
		return nil
	}
	entries, _ := os.ReadDir(c.shared)
	for _, e := range entries {
		digest, ok := strings.CutPrefix(e.Name(), key+preparedName+"-")
		if !ok {
			continue
		}
		name := filepath.Join(c.shared, e.Name())
		data, err := os.ReadFile(name)
		sum := sha256.Sum256(data)
		var p wasmstate.Program
		if err != nil || hex.EncodeToString(sum[:]) != digest || gob.NewDecoder(bytes.NewReader(data)).Decode(&p) != nil {
			_ = os.Remove(name)
			continue
		}
		touch(name)
		return &p
	}
	return nil
}

// storePrepared keeps a rewritten module. One that cannot be kept is rewritten
// again by the next process.
func (c *codeCache) storePrepared(key string, p *wasmstate.Program) {
	if c == nil {
		return
	}
	var data bytes.Buffer
	if gob.NewEncoder(&data).Encode(p) != nil {
		return
	}
	_ = os.MkdirAll(c.desk, 0o700)
	temp, err := os.CreateTemp(c.desk, preparedName+"-*")
	if err != nil {
		return
	}
	_, err = temp.Write(data.Bytes())
	if cerr := temp.Close(); err == nil {
		err = cerr
	}
	sum := sha256.Sum256(data.Bytes())
	if err == nil {
		err = os.Rename(temp.Name(), filepath.Join(c.shared, key+preparedName+"-"+hex.EncodeToString(sum[:])))
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	c.bound()
}
