package host

import (
	"bytes"
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
)

// Values are the values that tools keep for each other in a session, or for later calls
// of their plugin. Each write increases the version of a value. The plugin sees an
// error that is a [*Refusal]. Of any other error it learns only that the operation
// failed: log the error.
type Values interface {
	// Get returns a value; its version is 0 if it is missing.
	Get(ctx context.Context, key string) (Value, error)
	// Set stores a value if the stored version is version, or version is [AnyVersion].
	// The value is durable when Set returns the new version. 0 is the version of a
	// missing value. After ttl the value counts as missing; 0 means never.
	Set(ctx context.Context, key string, data json.RawMessage, version int64, ttl time.Duration) (int64, error)
	// Delete removes a value under the same condition, and reports whether there was
	// one.
	Delete(ctx context.Context, key string, version int64) (bool, error)
	// List returns values sorted by key, without their data: up to most of those whose
	// keys begin with prefix and sort after after.
	List(ctx context.Context, prefix, after string, most int) ([]Value, error)
}

// AnyVersion stands for every version of a value, and for none.
const AnyVersion = -1

// Value is one of [Values].
type Value struct {
	Key     string          `json:"key,omitempty"`
	Version int64           `json:"version,omitempty"`
	Bytes   int             `json:"bytes,omitempty"`
	Data    json.RawMessage `json:"value,omitempty"`
}

// Refusal says why a service refuses a request of a plugin, in words for the plugin.
type Refusal struct {
	Code    int32 // abi.CallDenied, abi.CallInvalid, abi.CallLimit or abi.CallConflict
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// readCost is what an operation costs that may wait for the host's disk, but does
// not write, as a number of bytes.
const readCost = 100_000 * bytesPerUnit

// A valueStore is where an operation finds its values, and their bounds.
type valueStore struct {
	of      func(c *call) Values
	missing string // why a call has none
	most    int    // bytes of one value
	what    string // they are values of
	expires bool   // values may expire, and are listed by page
}

// maxPage is how many values are listed at a time.
const maxPage = 256

// maxTTL is the longest time after which a value expires.
const maxTTL = 10 * 365 * 24 * time.Hour

// valueRequest is the request of each operation, with the fields that it uses.
type valueRequest struct {
	Key     *string         `json:"key"`
	Value   json.RawMessage `json:"value"`
	Version *int64          `json:"version"`
	TTL     *int64          `json:"ttl_ms"`
	Prefix  *string         `json:"prefix"`
	After   *string         `json:"after"`
}

// has reports whether exactly the fields named are set, as far as they are not
// optional, which those after a question mark are.
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

// version returns the version that the stored one is compared with.
func (r valueRequest) version() int64 {
	if r.Version == nil {
		return AnyVersion
	}
	return *r.Version
}

// valueOperation reads the request of an operation on a store, does it, and answers.
func valueOperation(s *valueStore, do func(c *call, s *valueStore, in valueRequest) (any, error)) func(*call, []byte) (work, int32) {
	return atOnce(func(c *call, request []byte) int32 {
		if s.of(c) == nil {
			return c.deny(s.missing)
		}
		if len(request) > s.most+1<<10 { // a value, a key, and what is around them
			return c.refuse(abi.CallLimit, "limit", fmt.Sprintf("a value %s has at most %d bytes", s.what, s.most))
		}
		var in valueRequest
		strict := json.NewDecoder(bytes.NewReader(request))
		strict.DisallowUnknownFields()
		if strict.Decode(&in) != nil || !utf8.Valid(request) || in.Version != nil && *in.Version < 0 {
			return c.refuse(abi.CallInvalid, "invalid", `expected an object with "key", "value" and "version", as the operation takes them`)
		}

		c.guest.Lend()
		response, err := do(c, s, in)
		c.guest.Reclaim()
		c.meter.check() // a call that has to end ends here
		if refusal, ok := errors.AsType[*Refusal](err); ok {
			return c.refuse(refusal.Code, refusalNames[refusal.Code], refusal.Message)
		}
		if err != nil {
			return c.refuse(abi.CallFailed, "failed", "the values "+s.what+" cannot be reached now")
		}
		return c.respond(encode(response))
	})
}

// refusalNames are the names of the codes of refusals.
var refusalNames = map[int32]string{abi.CallInvalid: "invalid", abi.CallLimit: "limit", abi.CallConflict: "conflict", abi.CallDenied: "denied", abi.CallFailed: "failed", abi.CallLost: "lost"}

func wants(example string) error { return &Refusal{abi.CallInvalid, "expected " + example} }

// getValue answers {"value", "version"}, or {} if the value is missing.
func getValue(c *call, s *valueStore, in valueRequest) (any, error) {
	if !in.has("key") {
		return nil, wants(`{"key": name}`)
	}
	c.meter.charge(readCost)
	v, err := s.of(c).Get(&c.ctx, *in.Key)
	return Value{Version: v.Version, Data: v.Data}, err
}

// valueList is a page of values.
type valueList struct {
	Values []Value `json:"values"`
	More   bool    `json:"more,omitempty"` // there are others after the last one
}

// listValues answers {"values": [{"key", "version", "bytes"}], "more"}.
func listValues(c *call, s *valueStore, in valueRequest) (any, error) {
	switch {
	case !s.expires && !in.has(""):
		return nil, wants("{}")
	case !in.has("prefix? after?"):
		return nil, wants(`{"prefix": text, "after": key}, both optional`)
	}
	c.meter.charge(readCost)
	all, err := s.of(c).List(&c.ctx, deref(in.Prefix), deref(in.After), maxPage+1)
	out := valueList{make([]Value, min(len(all), maxPage)), len(all) > maxPage}
	for i := range out.Values {
		out.Values[i] = Value{Key: all[i].Key, Version: all[i].Version, Bytes: all[i].Bytes}
	}
	return out, err
}

// setValue answers {"version"}.
func setValue(c *call, s *valueStore, in valueRequest) (any, error) {
	switch {
	case s.expires && !in.has("key value version? ttl_ms?"):
		return nil, wants(`{"key": name, "value": anything, "version": number, "ttl_ms": number}, where the last two are optional`)
	case !s.expires && !in.has("key value version?"):
		return nil, wants(`{"key": name, "value": anything, "version": number}, where the version is optional`)
	case in.TTL != nil && (*in.TTL < 1 || *in.TTL > maxTTL.Milliseconds()):
		return nil, wants(fmt.Sprintf(`"ttl_ms" from 1 to %d`, maxTTL.Milliseconds()))
	}
	c.meter.charge(saveCost)
	version, err := s.of(c).Set(&c.ctx, *in.Key, in.Value, in.version(), time.Duration(deref(in.TTL))*time.Millisecond)
	return Value{Version: version}, err
}

// deleteValue answers {"deleted"}.
func deleteValue(c *call, s *valueStore, in valueRequest) (any, error) {
	if !in.has("key version?") {
		return nil, wants(`{"key": name, "version": number}, where the version is optional`)
	}
	c.meter.charge(saveCost)
	deleted, err := s.of(c).Delete(&c.ctx, *in.Key, in.version())
	return map[string]bool{"deleted": deleted}, err
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
