package plugins

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/internal/signature"
)

// A signature that is made after the plugin was accepted is kept once that is accepted, and
// does not hide what the plugin has said of itself.
func TestKeptSignature(t *testing.T) {
	acme := newKey(t)
	s := accepting(t, map[string][]byte{"box.wasm": genuine(nil)}, nil)
	s.cfg.Verifier = &signature.Policy{Rules: []signature.Rule{{Minisign: acme.public}}}
	for name, data := range acme.sign(map[string][]byte{"box.wasm": genuine(nil)}, "box.wasm") {
		s.files[name] = wasmFile(data)
	}
	s.accept(s.cfg.Lock)
	s.put(func(m *abi.Manifest) { m.Tools[0].Title = "Safe" })
	delete(s.files, "box.wasm.minisig")

	r := s.open()
	require.Len(t, problems(r), 1)
	require.Equal(t, "1", answer(t, r, "box"), "the accepted one is kept with its signature")
	f, err := s.cfg.Lock.Read()
	require.NoError(t, err)
	before, err := s.cfg.Lock.Version(t.Context(), newHost(t), f.Named("box"))
	require.NoError(t, err)
	require.Empty(t, before.Described().Manifest.Tools[0].Title)
}

// The accepted version counts as used when it is loaded in place of another file: it is not
// removed a month after that was accepted.
func TestKeptIsUsed(t *testing.T) {
	s := accepting(t, map[string][]byte{"box.wasm": genuine(nil)}, nil)
	s.put(func(m *abi.Manifest) { m.Tools[0].Title = "Safe" })
	entries, err := os.ReadDir(s.cfg.Lock.Kept)
	require.NoError(t, err)
	long := time.Now().Add(-2 * keptFor)
	require.NoError(t, os.Chtimes(filepath.Join(s.cfg.Lock.Kept, entries[0].Name()), long, long))

	require.Equal(t, "1", answer(t, s.open(), "box"))
	require.NoError(t, ForgetKept(s.cfg.Lock.Kept, &lock.File{}), "by another lock")
	require.Equal(t, "1", answer(t, s.open(), "box"))
}
