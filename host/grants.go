package host

import (
	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/grant"
)

// Grant is the operator's grant to one plugin. The zero Grant grants nothing.
type Grant = grant.Grant

// Capability is something that a plugin can do once the operator has granted it.
type Capability = grant.Capability

// Capabilities lists all capabilities in display order.
var Capabilities = grant.Capabilities

// GrantProblem is one problem of a grant.
type GrantProblem = grant.GrantProblem

// Choose is a placeholder in the result of [Grant.Lacking] for what only the operator
// can choose: a folder or a value.
const Choose = grant.Choose

// CheckNeeds returns an error about needs of a plugin or its tools that no grant could
// cover.
func CheckNeeds(m *abi.Manifest) error { return grant.CheckNeeds(m) }

// Mount grants a folder of the host to a plugin. Links cannot lead out of the
// folder.
type Mount = grant.Mount

// HTTPRule allows HTTP requests of a plugin. Zero fields allow as little as possible.
type HTTPRule = grant.HTTPRule

// DefaultMaxBody is the default of HTTPRule.MaxBody, in bytes.
const DefaultMaxBody = grant.DefaultMaxBody

// KV is the grant of a key-value store. The zero KV grants nothing.
type KV = grant.KV

// KVScope is the set of calls that share a key-value store.
type KVScope = grant.KVScope

// The scopes. Empty is KVPlugin.
const (
	KVPlugin  = grant.KVPlugin  // all sessions
	KVSession = grant.KVSession // each session separately; removed with the session
)

// Defaults of a [KV].
const (
	DefaultKVKeys  = grant.DefaultKVKeys
	DefaultKVBytes = grant.DefaultKVBytes
)
