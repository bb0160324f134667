package guesttest

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"

	"github.com/toolhost/toolhost/guest"
)

// Session has the values of a session, without the limits of a host. The zero Session
// has none. It is safe for concurrent use.
type Session struct {
	ReadOnly bool // the plugin was granted session: read

	mu      sync.Mutex
	version int64
	values  map[string]value
}

type value struct {
	Key     string          `json:"key,omitempty"`
	Version int64           `json:"version,omitempty"`
	Bytes   int             `json:"bytes,omitempty"`
	Data    json.RawMessage `json:"value,omitempty"`
}

// Value returns a value, or nil.
func (s *Session) Value(key string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key].Data
}

// use answers an operation of a tool, which has the hint readonly or not.
func (s *Session) use(op string, request []byte, readonly bool) (any, error) {
	writes := op == "session.set" || op == "session.delete"
	if writes && readonly {
		return nil, &guest.HostError{Code: "denied", Message: "a tool with the hint readonly cannot write session values: drop the hint, or do not write"}
	}
	if s == nil || writes && s.ReadOnly {
		return nil, &guest.HostError{Code: "denied", Message: op + " is not granted to this plugin"}
	}
	var in struct {
		Key     string          `json:"key"`
		Value   json.RawMessage `json:"value"`
		Version *int64          `json:"version"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.Key == "" && op != "session.list" || in.Value == nil && op == "session.set" {
		return nil, &guest.HostError{Code: "invalid", Message: "not a request of " + op}
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	old := s.values[in.Key]
	if writes && in.Version != nil && *in.Version != old.Version {
		return nil, &guest.HostError{Code: "conflict", Message: "it has changed in the meantime: read it again"}
	}
	switch op {
	case "session.get":
		return value{Version: old.Version, Data: old.Data}, nil
	case "session.set":
		if s.values == nil {
			s.values = map[string]value{}
		}
		s.version++
		s.values[in.Key] = value{Key: in.Key, Version: s.version, Bytes: len(in.Value), Data: in.Value}
		return value{Version: s.version}, nil
	case "session.delete":
		delete(s.values, in.Key)
		return map[string]bool{"deleted": old.Version > 0}, nil
	case "session.list":
		all := []value{}
		for _, v := range s.values {
			v.Data = nil
			all = append(all, v)
		}
		slices.SortFunc(all, func(a, b value) int { return cmp.Compare(a.Key, b.Key) })
		return map[string]any{"values": all}, nil
	}
	return nil, &guest.HostError{Code: "unknown", Message: "this host has no such capability"}
}
