package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
)

// Values are what the tools of a session keep for each other. Each write of a value
// gives it a higher version. An error that is a [*Refusal] is for the plugin. Of any
// other it learns only that the operation failed: log the error.
type Values interface {
	// Get returns a value; its version is 0 if there is none.
	Get(ctx context.Context, key string) (Value, error)
	// Set stores a value if the stored version is version or version is AnyVersion,
	// durably before it returns the new version. 0 is the version of a missing value.
	Set(ctx context.Context, key string, data json.RawMessage, version int64) (int64, error)
	// Delete removes a value under the same condition, and reports whether there was
	// one.
	Delete(ctx context.Context, key string, version int64) (bool, error)
	// List returns all values by key, without their data.
	List(ctx context.Context) ([]Value, error)
}

// AnyVersion stands for every version of a value, and for none.
const AnyVersion = -1

// Value is a value of a session.
type Value struct {
	Key     string          `json:"key,omitempty"`
	Version int64           `json:"version,omitempty"`
	Bytes   int             `json:"bytes,omitempty"`
	Data    json.RawMessage `json:"value,omitempty"`
}

// Refusal is why a service refuses a request of a plugin, in words for the plugin.
type Refusal struct {
	Code    int32 // abi.CallInvalid, abi.CallLimit or abi.CallConflict
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// readCost is what an operation costs that may wait for the host's disk, but does
// not write, as a number of bytes.
const readCost = 100_000 * bytesPerUnit

// sessionCapability is the values of the session.
var sessionCapability = Capability{
	Name: "session", Doc: "values that the tools of a session share: `read` or `write`",
	Missing: func(n abi.Needs, g Grant) []string {
		if n.Session == "" || g.Session == abi.SessionWrite || g.Session == n.Session {
			return nil
		}
		return []string{sessionText(n.Session)}
	},
	Lacking: func(n abi.Needs, g Grant, add *Grant) {
		if n.Session != "" && g.Session != abi.SessionWrite && g.Session != n.Session {
			add.Session = n.Session
		}
	},
	Granted: func(g Grant) []string {
		if g.Session == "" {
			return nil
		}
		return []string{sessionText(g.Session)}
	},
	Check: func(g Grant) []GrantProblem {
		switch g.Session {
		case "", abi.SessionRead, abi.SessionWrite:
			return nil
		}
		return []GrantProblem{{"session", fmt.Sprintf("expected read or write, found %q", g.Session)}}
	},
	Writes: func(g Grant) bool { return g.Session == abi.SessionWrite },
	ops: map[string]operation{
		"session.get":    {readsSession, "session is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", sessionOperation(getValue)},
		"session.list":   {readsSession, "session is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", sessionOperation(listValues)},
		"session.set":    {writesSession, noSessionWrite, sessionOperation(setValue)},
		"session.delete": {writesSession, noSessionWrite, sessionOperation(deleteValue)},
	},
}

const noSessionWrite = "writing session values is not granted to this plugin, or the tool is readonly: it takes the need session: write, and no hint readonly"

func readsSession(c *call) bool  { return c.Policy.Session != "" }
func writesSession(c *call) bool { return c.Policy.Session == abi.SessionWrite }

// sessionText is a need or a grant as an operator would write it.
func sessionText(mode abi.SessionMode) string { return fmt.Sprintf("session (%s)", mode) }

// sessionRequest is the request of each operation, with the fields that it uses.
type sessionRequest struct {
	Key     *string         `json:"key"`
	Value   json.RawMessage `json:"value"`
	Version *int64          `json:"version"`
}

// version returns the version that the stored one is compared with.
func (r sessionRequest) version() int64 {
	if r.Version == nil {
		return AnyVersion
	}
	return *r.Version
}

// maxSessionRequest bounds a request: a value, a key, and what is around them.
const maxSessionRequest = abi.MaxSessionValue + 1<<10

// sessionOperation reads the request of an operation, does it, and answers.
func sessionOperation(do func(c *call, in sessionRequest) (any, error)) func(*call, []byte) int32 {
	return func(c *call, request []byte) int32 {
		if c.Values == nil {
			return c.deny("this call has no session")
		}
		if len(request) > maxSessionRequest {
			return c.refuse(abi.CallLimit, "limit", fmt.Sprintf("a value of a session has at most %d bytes", abi.MaxSessionValue))
		}
		var in sessionRequest
		strict := json.NewDecoder(bytes.NewReader(request))
		strict.DisallowUnknownFields()
		if strict.Decode(&in) != nil || !utf8.Valid(request) || in.Version != nil && *in.Version < 0 {
			return c.refuse(abi.CallInvalid, "invalid", `expected an object with "key", "value" and "version", as the operation takes them`)
		}

		c.guest.Lend()
		response, err := do(c, in)
		c.guest.Reclaim()
		c.meter.check() // a call that has to end ends here
		if refusal, ok := errors.AsType[*Refusal](err); ok {
			return c.refuse(refusal.Code, refusalNames[refusal.Code], refusal.Message)
		}
		if err != nil {
			return c.refuse(abi.CallFailed, "failed", "the values of the session cannot be reached now")
		}
		return c.respond(encode(response))
	}
}

// refusalNames are the names of the codes of refusals.
var refusalNames = map[int32]string{abi.CallInvalid: "invalid", abi.CallLimit: "limit", abi.CallConflict: "conflict"}

var (
	errWantsKey   = &Refusal{abi.CallInvalid, `expected {"key": name}`}
	errWantsValue = &Refusal{abi.CallInvalid, `expected {"key": name, "value": anything, "version": number}, where the version is optional`}
	errWantsNone  = &Refusal{abi.CallInvalid, "expected {}"}
)

// getValue answers {"value", "version"}, or {} if there is none.
func getValue(c *call, in sessionRequest) (any, error) {
	if in.Key == nil || in.Value != nil || in.Version != nil {
		return nil, errWantsKey
	}
	c.meter.charge(readCost)
	v, err := c.Values.Get(&c.ctx, *in.Key)
	return Value{Version: v.Version, Data: v.Data}, err
}

// listValues answers {"values": [{"key", "version", "bytes"}]}.
func listValues(c *call, in sessionRequest) (any, error) {
	if in.Key != nil || in.Value != nil || in.Version != nil {
		return nil, errWantsNone
	}
	c.meter.charge(readCost)
	all, err := c.Values.List(&c.ctx)
	out := make([]Value, len(all))
	for i, v := range all {
		out[i] = Value{Key: v.Key, Version: v.Version, Bytes: v.Bytes}
	}
	return map[string]any{"values": out}, err
}

// setValue answers {"version"}.
func setValue(c *call, in sessionRequest) (any, error) {
	if in.Key == nil || in.Value == nil {
		return nil, errWantsValue
	}
	c.meter.charge(saveCost)
	version, err := c.Values.Set(&c.ctx, *in.Key, in.Value, in.version())
	return Value{Version: version}, err
}

// deleteValue answers {"deleted"}.
func deleteValue(c *call, in sessionRequest) (any, error) {
	if in.Key == nil || in.Value != nil {
		return nil, errWantsKey
	}
	c.meter.charge(saveCost)
	deleted, err := c.Values.Delete(&c.ctx, *in.Key, in.version())
	return map[string]bool{"deleted": deleted}, err
}
