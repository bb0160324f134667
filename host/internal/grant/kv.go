package grant

import (
	"fmt"

	"github.com/toolhost/toolhost/abi"
)

// KVScope is the set of calls that share a key-value store.
type KVScope string

// The scopes. Empty means KVPlugin.
const (
	KVPlugin  KVScope = "plugin"  // one store for all sessions
	KVSession KVScope = "session" // one store per session, removed with the session
)

// Defaults of a [KV].
const (
	DefaultKVKeys  = 1000
	DefaultKVBytes = 4 << 20
)

// KV is the grant of a key-value store. The zero KV grants nothing.
type KV struct {
	Mode  abi.StoreMode // allowed operations; empty means none
	Scope KVScope
	Keys  int   // maximum number of values; 0 means DefaultKVKeys
	Bytes int64 // maximum size of all values and their keys together, in bytes; 0 means DefaultKVBytes
}

// kvCapability grants the plugin's own key-value store.
var kvCapability = store("kv", "a key-value store of its own", checkKV,
	func(n abi.Needs) abi.StoreMode { return n.KV }, func(g *Grant) *abi.StoreMode { return &g.KV.Mode })

func checkKV(g Grant) (problems []GrantProblem) {
	kv := g.KV
	switch kv.Mode {
	case abi.StoreRead, abi.StoreWrite:
	case "":
		if kv != (KV{}) {
			problems = append(problems, GrantProblem{"kv.mode", "expected read or write, found nothing"})
		}
	default:
		problems = append(problems, GrantProblem{"kv.mode", fmt.Sprintf("expected read or write, found %q", kv.Mode)})
	}
	if kv.Scope != "" && kv.Scope != KVPlugin && kv.Scope != KVSession {
		problems = append(problems, GrantProblem{"kv.scope", fmt.Sprintf("expected plugin or session, found %q", kv.Scope)})
	}
	if kv.Keys < 0 || kv.Bytes < 0 {
		problems = append(problems, GrantProblem{"kv", "expected positive numbers of keys and bytes"})
	}
	return problems
}
