package host

import (
	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/grant"
	"github.com/toolhost/toolhost/internal/egress"
)

// Grant is the operator's grant to one plugin. The zero Grant grants nothing.
//
//	Clock   bool              the real time, and sleeping
//	Random  bool              real randomness
//	Ask     bool              questions to the user, if Call.Ask is set
//	Session StoreMode         values of the session: abi.StoreRead or abi.StoreWrite
//	KV      KV                a key-value store
//	HTTP    []HTTPRule        requests over HTTP
//	Files   []Mount           folders
//	Env     map[string]string environment variables as the plugin sees them
//	Tools   []string          other tools it may call, by the names agents know them by
//	Config  map[string]string the plugin's settings; do not put secrets there
type Grant = grant.Grant

// Capability is a right that the operator can grant to a plugin.
type Capability = grant.Capability

// Capabilities lists all capabilities in display order.
var Capabilities = grant.Capabilities

// GrantProblem is one problem with a grant.
type GrantProblem = grant.GrantProblem

// Choose is a placeholder in the result of [Grant.Lacking] for a folder or a value
// that only the operator can choose.
const Choose = grant.Choose

// CheckNeeds returns an error if the plugin or one of its tools has needs that no grant
// could cover.
func CheckNeeds(m *abi.Manifest) error { return grant.CheckNeeds(m) }

// Mount grants a folder of the host to a plugin. Links cannot lead out of the
// folder.
//
//	Dir  string   folder of the host
//	Path string   absolute path in the sandbox, such as /work
//	Mode FileMode abi.FileRead, the default, or abi.FileWrite
type Mount = grant.Mount

// HTTPRule allows HTTP requests of a plugin. Zero fields allow as little as possible.
//
//	URL     string   https://HOST[:PORT]/PATH: in HOST, *.example.com matches names with exactly one label in place of the *; a final /* matches everything below
//	Methods []string allowed methods, in upper case; empty means GET and HEAD, * means all
//	Secret  string   name of the secret that is added to the requests
//	MaxBody int64    maximum size of a body in either direction, in bytes, at most 256 MiB; 0 means DefaultMaxBody
//	Private bool     whether loopback and private addresses of HOST are allowed
type HTTPRule = grant.HTTPRule

// DefaultMaxBody is the default of HTTPRule.MaxBody, in bytes.
const DefaultMaxBody = egress.DefaultMaxBody

// KV is the grant of a key-value store. The zero KV grants nothing.
//
//	Mode  StoreMode abi.StoreRead or abi.StoreWrite
//	Scope KVScope   which calls share the store; empty means KVPlugin
//	Keys  int       maximum number of values; 0 means DefaultKVKeys
//	Bytes int64     maximum size of all values and their keys together, in bytes; 0 means DefaultKVBytes
type KV = grant.KV

// KVScope is the set of calls that share a key-value store.
type KVScope = grant.KVScope

// The scopes. Empty means KVPlugin.
const (
	KVPlugin  = grant.KVPlugin  // one store for all sessions
	KVSession = grant.KVSession // one store per session, removed with the session
)

// Defaults of a [KV].
const (
	DefaultKVKeys  = grant.DefaultKVKeys
	DefaultKVBytes = grant.DefaultKVBytes
)
