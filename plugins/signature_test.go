package plugins

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"aead.dev/minisign"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/signature"
)

// signKey is a key pair of a test.
type signKey struct {
	public string
	secret minisign.PrivateKey
}

func newKey(t testing.TB) signKey {
	public, secret, err := minisign.GenerateKey(nil)
	require.NoError(t, err)
	return signKey{public.String(), secret}
}

// sign adds signatures of some of the files.
func (k signKey) sign(files map[string][]byte, names ...string) map[string][]byte {
	files = maps.Clone(files)
	for _, name := range names {
		files[name+".minisig"] = signature.SignMinisign(k.secret, SignedFile{Name: name, Data: files[name]}, time.Unix(0, 0))
	}
	return files
}

func (k signKey) id() string { return signature.KeyID(k.secret.ID()) }

// What is signed by somebody whom the operator trusts is served; what is not is a
// problem that says so, where a signature is required.
func TestSignatures(t *testing.T) {
	acme, other := newKey(t), newKey(t)
	plain := map[string][]byte{"p.wasm": saying("p", "one", 1)}
	beside := map[string][]byte{"p.wasm": unsealed(), "p.toolhost.yaml": []byte(sidecarYAML)}
	ignored := map[string][]byte{"p.wasm": saying("p", "one", 1), "p.toolhost.yaml": []byte(sidecarYAML)}
	trust := func(rules ...signature.Rule) *signature.Policy { return &signature.Policy{Rules: rules} }
	require.NotEqual(t, acme.public, other.public)
	must := func(p *signature.Policy) *signature.Policy {
		p.Require = true
		return p
	}
	ofAcme := signature.Rule{Minisign: acme.public}
	onlyFor := func(plugins ...string) signature.Rule {
		return signature.Rule{Minisign: other.public, Plugins: plugins}
	}
	from := func(sources ...string) signature.Rule {
		return signature.Rule{Minisign: other.public, Sources: sources}
	}
	changed := func(files map[string][]byte, name string, data []byte) map[string][]byte {
		files = maps.Clone(files)
		files[name] = data
		return files
	}

	for _, test := range []struct {
		name   string
		policy *signature.Policy
		files  map[string][]byte
		signer string // of the plugin that is served
		want   string // the problem
	}{
		{"signed", must(trust(ofAcme)), acme.sign(plain, "p.wasm"), acme.public, ""},
		{"signed by one of several", must(trust(signature.Rule{Minisign: other.public}, ofAcme)), acme.sign(plain, "p.wasm"), acme.public, ""},
		{"signed, although nobody asks", trust(ofAcme), acme.sign(plain, "p.wasm"), acme.public, ""},
		{"not signed, and nobody asks", trust(ofAcme), plain, "", ""},
		{"not signed", must(trust(ofAcme)), plain, "", "plugins/p.wasm: p.wasm: not signed"},
		{"of a stranger, and nobody asks", trust(ofAcme), other.sign(plain, "p.wasm"), "", ""},
		{"of a stranger", must(trust(ofAcme)), other.sign(plain, "p.wasm"), "", "plugins/p.wasm: p.wasm: signed with the minisign key " + other.id() + ", which is not trusted"},
		{
			"another file, and nobody asks", trust(ofAcme), changed(acme.sign(plain, "p.wasm"), "p.wasm", saying("p", "one", 2)), "",
			"plugins/p.wasm: p.wasm: the signature is of another file, or of another key with the identifier " + acme.id(),
		},
		{"an empty signature", trust(ofAcme), changed(plain, "p.wasm.minisig", nil), "", "plugins/p.wasm: p.wasm: minisign: invalid signature"},
		{
			"a huge signature", trust(ofAcme), changed(plain, "p.wasm.minisig", make([]byte, signature.MaxSize+1)), "",
			"plugins/p.wasm: p.wasm: p.wasm.minisig: the file has 1048577 bytes, expected at most 1048576",
		},

		{"with a sidecar", must(trust(ofAcme)), acme.sign(beside, "p.wasm", "p.toolhost.yaml"), acme.public, ""},
		{
			"the sidecar is not signed", trust(ofAcme), acme.sign(beside, "p.wasm"), "",
			"plugins/p.wasm: p.toolhost.yaml: not signed: the signer of the module (minisign " + acme.public + ") has to sign it too",
		},
		{"the sidecar is not signed, as it has to be", must(trust(ofAcme)), acme.sign(beside, "p.wasm"), "", "plugins/p.wasm: p.toolhost.yaml: not signed"},
		{
			"the sidecar is of another signer", must(trust(ofAcme, signature.Rule{Minisign: other.public})), other.sign(acme.sign(beside, "p.wasm"), "p.toolhost.yaml"), "",
			"plugins/p.wasm: p.toolhost.yaml: not signed: the signer of the module (minisign " + acme.public + ") has to sign it too",
		},
		{
			"the sidecar has changed", trust(ofAcme), changed(acme.sign(beside, "p.wasm", "p.toolhost.yaml"), "p.toolhost.yaml", []byte(strings.ReplaceAll(sidecarYAML, "Made for a test.", "Obey."))), "",
			"plugins/p.wasm: p.toolhost.yaml: the signature is of another file, or of another key with the identifier " + acme.id(),
		},
		{"an ignored sidecar", must(trust(ofAcme)), acme.sign(ignored, "p.wasm"), acme.public, "plugins/p.toolhost.yaml: ignored: the module has a manifest of its own"},

		{"of whom the plugin must be", trust(ofAcme, onlyFor("p")), other.sign(plain, "p.wasm"), other.public, ""},
		{"not of whom the plugin must be", trust(ofAcme, onlyFor("p")), acme.sign(plain, "p.wasm"), "", "plugins/p.wasm: signed by minisign " + acme.public + `, which is not trusted with the plugin "p"`},
		{"of nobody, and the plugin must be", trust(ofAcme, onlyFor("p")), plain, "", `plugins/p.wasm: not signed, but the plugin "p" must be`},
		{"a pattern", trust(onlyFor("q", "p*")), plain, "", `plugins/p.wasm: not signed, but the plugin "p" must be`},
		{"of whom is trusted with another one, and nobody asks", trust(onlyFor("q")), other.sign(plain, "p.wasm"), "", ""},
		{"another plugin must be", trust(onlyFor("q")), plain, "", ""},
		{"of whom is trusted with another one", must(trust(onlyFor("q"))), other.sign(plain, "p.wasm"), "", "plugins/p.wasm: signed by minisign " + other.public + `, which is not trusted with the plugin "p"`},
		{"the folder must be", trust(ofAcme, from("plugins")), plain, "", "plugins/p.wasm: p.wasm: not signed"},
		{"of whom the folder must be", trust(ofAcme, from("./plugins/")), other.sign(plain, "p.wasm"), other.public, ""},
		{"another folder must be", trust(from("elsewhere", "plug")), plain, "", ""},
		{"of whom is trusted elsewhere", must(trust(from("elsewhere"))), other.sign(plain, "p.wasm"), "", "plugins/p.wasm: p.wasm: signed with the minisign key " + other.id() + ", which is not trusted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := openWith(t, newHost(t), Config{Folders: []Folder{folder(test.files)}, Verifier: test.policy})
			want := []string{}
			if test.want != "" {
				want = append(want, test.want)
			}
			require.Equal(t, want, problems(r))
			if test.want != "" && test.signer == "" {
				require.Empty(t, r.Plugins())
				return
			}

			require.Len(t, r.Plugins(), 1)
			require.Equal(t, Signer{Minisign: test.signer}, r.Plugins()[0].Signer)
		})
	}
}

// A plugin that has to be signed and is not does not even describe itself.
func TestUnsignedDoesNotRun(t *testing.T) {
	p := newKey(t)
	spins := plugintest.Plugin{Describe: plugintest.Do().Spin(), Invoke: plugintest.Do().Echo()}.Wasm()
	r := openWith(t, newHost(t), Config{
		Folders:  []Folder{folder(map[string][]byte{"p.wasm": spins})},
		Verifier: &signature.Policy{Rules: []signature.Rule{{Minisign: p.public}}, Require: true},
	})
	require.Equal(t, []string{"plugins/p.wasm: p.wasm: not signed"}, problems(r))
}

// What comes with the program needs no signature.
func TestOwnPluginsNeedNoSignature(t *testing.T) {
	pack, builtIn := folder(map[string][]byte{"p.wasm": sealed(named("p"))}), folder(map[string][]byte{"q.wasm": sealed(named("q"))})
	pack.Pack, builtIn.BuiltIn = true, true
	r := openWith(t, newHost(t), Config{Folders: []Folder{pack, builtIn}, Verifier: &signature.Policy{Rules: []signature.Rule{{Minisign: newKey(t).public}}, Require: true}})
	require.Empty(t, problems(r))
	require.Len(t, r.Plugins(), 2)
}

// A signature that comes, changes or goes counts at the next reload. What was verified and
// compiled stays in use until then, and longer if what replaces it is refused.
func TestReloadOfSignatures(t *testing.T) {
	acme, other := newKey(t), newKey(t)
	plain := map[string][]byte{"p.wasm": saying("p", "one", 1)}
	signed := acme.sign(plain, "p.wasm")["p.wasm.minisig"]
	files := fstest.MapFS{"p.wasm": wasmFile(plain["p.wasm"])}
	policy := &signature.Policy{Rules: []signature.Rule{{Minisign: acme.public}}, Require: true}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}, Verifier: policy})
	require.Empty(t, r.Plugins())

	files["p.wasm.minisig"] = wasmFile(signed)
	require.Equal(t, []string{"p"}, reload(t, r).Added)
	require.Equal(t, "1", answer(t, r, "p"))
	require.True(t, reload(t, r).Empty())
	before := r.Plugins()[0]

	// Another module with the old signature, or none, or that of a stranger.
	for _, change := range []func(){
		func() { files["p.wasm"] = wasmFile(saying("p", "one", 2)) },
		func() { delete(files, "p.wasm.minisig") },
		func() {
			files["p.wasm.minisig"] = wasmFile(other.sign(map[string][]byte{"p.wasm": files["p.wasm"].Data}, "p.wasm")["p.wasm.minisig"])
		},
	} {
		change()
		c := reload(t, r)
		require.Len(t, c.Problems, 1)
		require.ErrorContains(t, c.Problems[0].Err, "; the earlier version stays in use until the file is repaired or removed")
		require.Same(t, before, r.Plugins()[0])
		require.Equal(t, "1", answer(t, r, "p"))
	}

	files["p.wasm.minisig"] = wasmFile(acme.sign(map[string][]byte{"p.wasm": files["p.wasm"].Data}, "p.wasm")["p.wasm.minisig"])
	require.Equal(t, []string{"p"}, reload(t, r).Changed)
	require.Equal(t, "2", answer(t, r, "p"))

	// The signature goes: after a restart the plugin would not be served.
	delete(files, "p.wasm.minisig")
	c := reload(t, r)
	require.Len(t, c.Problems, 1)
	require.ErrorContains(t, c.Problems[0].Err, "p.wasm: not signed; the earlier version stays in use")
	require.Equal(t, "2", answer(t, r, "p"))
	require.Equal(t, []string{"plugins/p.wasm: p.wasm: not signed"}, problems(openWith(t, r.host, r.cfg)))
}

// A plugin whose signature goes before it is compiled is not used for the first time.
func TestUnsignedBeforeItIsCompiled(t *testing.T) {
	acme := newKey(t)
	signed := acme.sign(map[string][]byte{"p.wasm": saying("p", "one", 1)}, "p.wasm")
	files := fstest.MapFS{"p.wasm": wasmFile(signed["p.wasm"]), "p.wasm.minisig": wasmFile(signed["p.wasm.minisig"])}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}, Verifier: &signature.Policy{Rules: []signature.Rule{{Minisign: acme.public}}, Require: true}})
	require.Equal(t, []string{"p"}, toolNames(r))

	delete(files, "p.wasm.minisig")
	require.Equal(t, []string{"p"}, reload(t, r).Removed)
}

// A signer that is not trusted any more takes its plugins along, at once.
func TestTrustIsReconfigured(t *testing.T) {
	acme, other := newKey(t), newKey(t)
	trust := func(key string) *signature.Policy {
		return &signature.Policy{Rules: []signature.Rule{{Minisign: key}}, Require: true}
	}
	files := acme.sign(map[string][]byte{"p.wasm": saying("p", "one", 1)}, "p.wasm")
	r := openWith(t, newHost(t), Config{Folders: []Folder{folder(files)}})
	require.Zero(t, r.Plugins()[0].Signer, "nobody asked")
	require.Equal(t, "1", answer(t, r, "p"))

	for _, step := range []struct {
		verifier Verifier
		signer   string // of the plugin that is served
	}{{trust(acme.public), acme.public}, {trust(other.public), ""}, {trust(acme.public), acme.public}} {
		_, err := r.Reconfigure(t.Context(), func(cfg *Config) { cfg.Verifier = step.verifier })
		require.NoError(t, err)
		if step.signer == "" {
			require.Empty(t, r.Plugins())
			require.Equal(t, []string{"plugins/p.wasm: p.wasm: signed with the minisign key " + acme.id() + ", which is not trusted"}, problems(r))
			continue
		}

		before := r.Plugins()[0]
		require.Equal(t, step.signer, before.Signer.Minisign)
		require.Equal(t, "1", answer(t, r, "p"))
		_, err = r.Reconfigure(t.Context(), func(cfg *Config) { cfg.Verifier = trust(step.signer) })
		require.NoError(t, err)
		require.Same(t, before, r.Plugins()[0], "the same signers, written anew")
	}
}

// The bytes that are compiled are those whose signature was verified.
func TestSignedBytesAreCompiled(t *testing.T) {
	acme := newKey(t)
	files := fstest.MapFS{"p.wasm": wasmFile(saying("p", "one", 1))}
	for name, data := range acme.sign(map[string][]byte{"p.wasm": files["p.wasm"].Data}, "p.wasm") {
		files[name] = wasmFile(data)
	}
	r := openWith(t, newHost(t), Config{
		Folders:  []Folder{{Path: "plugins", FS: files}},
		Verifier: &signature.Policy{Rules: []signature.Rule{{Minisign: acme.public}}, Require: true},
	})
	tool, err := r.Lookup("p")
	require.NoError(t, err)

	files["p.wasm"] = wasmFile(saying("p", "one", 2)) // of the same size and time
	_, err = tool.Call(t.Context(), host.Call{})
	require.ErrorIs(t, err, ErrChanged)
}

// A version that was kept for a run has its signatures, and is verified again.
func TestVersionsAreSigned(t *testing.T) {
	acme, dir := newKey(t), t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	files := acme.sign(map[string][]byte{"s.wasm": unsealed(), "s.toolhost.yaml": []byte(sidecarYAML)}, "s.wasm", "s.toolhost.yaml")
	cfg := Config{Folders: []Folder{folder(files)}, Verifier: &signature.Policy{Rules: []signature.Rule{{Minisign: acme.public, Sources: []string{"plugins"}}}}}
	r := openWith(t, newHost(t), cfg)
	require.Empty(t, problems(r))
	digest, err := r.Plugins()[0].Digest()
	require.NoError(t, err)
	require.NoError(t, r.Plugins()[0].Keep(dir))

	kept, err := r.Version(t.Context(), dir, "side", digest)
	require.NoError(t, err)
	require.Equal(t, acme.public, kept.Signer.Minisign)

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	i := slices.IndexFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".yaml.minisig") })
	require.NoError(t, os.Remove(dir+"/"+entries[i].Name()))
	r.Forget(t.Context(), digest)
	_, err = r.Version(t.Context(), dir, "side", digest)
	require.ErrorIs(t, err, signature.ErrUnsigned)
}
