package guestcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/meter"
)

// Values are values that tools keep for each other in a session, or for later calls of
// their plugin. Each write increases the version of a value. The plugin sees the text
// of an error that is a [*Refusal]. For any other error it sees only that the operation
// failed, so the implementation should log the error.
type Values interface {
	// Get returns a value. If there is none, its version is 0.
	Get(ctx context.Context, key string) (Value, error)
	// Set stores a value if the stored version equals version, or version is
	// [AnyVersion]. The value is durable when Set returns the new version. A missing
	// value has version 0. After ttl the value counts as missing; 0 means never.
	Set(ctx context.Context, key string, data json.RawMessage, version int64, ttl time.Duration) (int64, error)
	// Delete removes a value under the same condition as Set, and reports whether there was
	// one.
	Delete(ctx context.Context, key string, version int64) (bool, error)
	// List returns values without their data, sorted by key: those whose keys begin with
	// prefix and sort after the key in after. The parameter most is the maximum number of
	// values.
	List(ctx context.Context, prefix, after string, most int) ([]Value, error)
}

// AnyVersion matches every version of a value, and a missing value.
const AnyVersion = -1

// Value is a value in [Values].
type Value struct {
	Key     string          `json:"key,omitempty"`
	Version int64           `json:"version,omitempty"`
	Bytes   int             `json:"bytes,omitempty"`
	Data    json.RawMessage `json:"value,omitempty"`
}

// Refusal says why a service refuses a request from a plugin. The plugin sees its text.
type Refusal struct {
	Code    int32 // abi.CallDenied, abi.CallInvalid, abi.CallLimit or abi.CallConflict
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// readCost is the cost of an operation that may wait for the host's disk but does
// not write, as a number of bytes.
const readCost = 100_000 * meter.BytesPerUnit

// A valueStore describes a kind of value: where an operation finds such values, and
// their limits.
type valueStore struct {
	name    string                      // name of the grant
	writing string                      // what is written, for messages
	mode    func(c *Call) abi.StoreMode // the granted mode
	of      func(c *Call) Values
	missing string // error text for a call without such values
	most    int    // largest value in bytes
	what    string // owner of the values, for messages
	expires bool   // values may expire, and are listed in pages
}

// maxPage is the largest page of a list.
const maxPage = 256

// maxTTL is the longest time to live of a value.
const maxTTL = 10 * 365 * 24 * time.Hour

// valueRequest is the request of all operations; each uses some of the fields.
type valueRequest struct {
	Key     *string         `json:"key"`
	Value   json.RawMessage `json:"value"`
	Version *int64          `json:"version"`
	TTL     *int64          `json:"ttl_ms"`
	Prefix  *string         `json:"prefix"`
	After   *string         `json:"after"`
}

// has reports whether exactly the named fields are set. Fields after a
// question mark are optional.
func (r valueRequest) has(fields string) bool {
	set := map[string]bool{"key": r.Key != nil, "value": r.Value != nil, "version": r.Version != nil, "ttl_ms": r.TTL != nil, "prefix": r.Prefix != nil, "after": r.After != nil}
	for _, field := range strings.Fields(fields) {
		name, optional := strings.CutSuffix(field, "?")
		if !optional && !set[name] {
			return false
		}
		delete(set, name)
	}
	return !slices.Contains(slices.Collect(maps.Values(set)), true)
}

// version returns the expected version.
func (r valueRequest) version() int64 {
	if r.Version == nil {
		return AnyVersion
	}
	return *r.Version
}

// valueOperation returns an operation that reads its request, performs it on a store,
// and responds.
func valueOperation(s *valueStore, do func(c *Call, s *valueStore, in valueRequest) (any, error)) func(*Call, []byte) (Work, int32) {
	return atOnce(func(c *Call, request []byte) int32 {
		if s.of(c) == nil {
			return c.deny(s.missing)
		}
		if len(request) > s.most+1<<10 { // a value, a key, and the fields around them
			return c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("a value %s has at most %d bytes", s.what, s.most))
		}
		var in valueRequest
		if decodeStrict(request, &in) != nil || !utf8.Valid(request) || in.Version != nil && *in.Version < 0 {
			return c.Refuse(abi.CallInvalid, "invalid", `expected an object with "key", "value" and "version", as the operation takes them`)
		}

		c.Guest.Lend()
		response, err := do(c, s, in)
		c.Guest.Reclaim()
		c.Meter.Check() // a call that has to end ends here
		if refusal, ok := errors.AsType[*Refusal](err); ok {
			return c.Refuse(refusal.Code, RefusalNames[refusal.Code], refusal.Message)
		}
		if err != nil {
			return c.Refuse(abi.CallFailed, "failed", "the values "+s.what+" cannot be reached now")
		}
		return c.respond(JSON(response))
	})
}

// RefusalNames are the names of the refusal codes.
var RefusalNames = map[int32]string{abi.CallInvalid: "invalid", abi.CallLimit: "limit", abi.CallConflict: "conflict", abi.CallDenied: "denied", abi.CallFailed: "failed", abi.CallLost: "lost"}

func wants(example string) error { return &Refusal{abi.CallInvalid, "expected " + example} }

// getValue answers {"value", "version"}, or {} if the value is missing.
func getValue(c *Call, s *valueStore, in valueRequest) (any, error) {
	if !in.has("key") {
		return nil, wants(`{"key": name}`)
	}
	c.Meter.Charge(readCost)
	v, err := s.of(c).Get(c.Context, *in.Key)
	return Value{Version: v.Version, Data: v.Data}, err
}

// valueList is a page of values.
type valueList struct {
	Values []Value `json:"values"`
	More   bool    `json:"more,omitempty"` // more values follow
}

// listValues answers {"values": [{"key", "version", "bytes"}], "more"}.
func listValues(c *Call, s *valueStore, in valueRequest) (any, error) {
	switch {
	case !s.expires && !in.has(""):
		return nil, wants("{}")
	case !in.has("prefix? after?"):
		return nil, wants(`{"prefix": text, "after": key}, both optional`)
	}
	c.Meter.Charge(readCost)
	all, err := s.of(c).List(c.Context, deref(in.Prefix), deref(in.After), maxPage+1)
	out := valueList{make([]Value, min(len(all), maxPage)), len(all) > maxPage}
	for i := range out.Values {
		out.Values[i] = Value{Key: all[i].Key, Version: all[i].Version, Bytes: all[i].Bytes}
	}
	return out, err
}

// setValue answers {"version"}.
func setValue(c *Call, s *valueStore, in valueRequest) (any, error) {
	switch {
	case s.expires && !in.has("key value version? ttl_ms?"):
		return nil, wants(`{"key": name, "value": anything, "version": number, "ttl_ms": number}, where the last two are optional`)
	case !s.expires && !in.has("key value version?"):
		return nil, wants(`{"key": name, "value": anything, "version": number}, where the version is optional`)
	case in.TTL != nil && (*in.TTL < 1 || *in.TTL > maxTTL.Milliseconds()):
		return nil, wants(fmt.Sprintf(`"ttl_ms" from 1 to %d`, maxTTL.Milliseconds()))
	}
	c.Meter.Charge(saveCost)
	version, err := s.of(c).Set(c.Context, *in.Key, in.Value, in.version(), time.Duration(deref(in.TTL))*time.Millisecond)
	return Value{Version: version}, err
}

// deleteValue answers {"deleted"}.
func deleteValue(c *Call, s *valueStore, in valueRequest) (any, error) {
	if !in.has("key version?") {
		return nil, wants(`{"key": name, "version": number}, where the version is optional`)
	}
	c.Meter.Charge(saveCost)
	deleted, err := s.of(c).Delete(c.Context, *in.Key, in.version())
	return map[string]bool{"deleted": deleted}, err
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
