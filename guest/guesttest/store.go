package guesttest

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/guest"
)

// Store holds the values of a session or of a key-value store, without the limits of
// a host. The zero Store is empty. It is safe for concurrent use.
type Store struct {
	ReadOnly bool // the grant allows only reading

	mu      sync.Mutex
	version int64
	values  map[string]value
}

type value struct {
	Key     string          `json:"key,omitempty"`
	Version int64           `json:"version,omitempty"`
	Bytes   int             `json:"bytes,omitempty"`
	Data    json.RawMessage `json:"value,omitempty"`
	expires time.Time
}

// get returns a value that has not expired.
func (s *Store) get(key string) value {
	v := s.values[key]
	if !v.expires.IsZero() && !v.expires.After(time.Now()) {
		delete(s.values, key)
		return value{}
	}
	return v
}

// Value returns a value, or nil.
func (s *Store) Value(key string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(key).Data
}

// use performs an operation of a tool. readonly is the tool's hint of that name.
func (s *Store) use(op string, request []byte, readonly bool) (any, error) {
	kind, do, _ := strings.Cut(op, ".")
	if !slices.Contains([]string{"get", "set", "delete", "list"}, do) {
		return nil, &guest.HostError{Code: "unknown", Message: "this host has no such capability"}
	}
	writes := do == "set" || do == "delete"
	if writes && readonly {
		return nil, &guest.HostError{Code: "denied", Message: "a tool with the hint readonly cannot write " + map[string]string{"session": "session values", "kv": "to kv"}[kind] + ": drop the hint, or do not write"}
	}
	if s == nil || writes && s.ReadOnly {
		return nil, &guest.HostError{Code: "denied", Message: op + " is not granted to this plugin"}
	}
	var in struct {
		Key     string          `json:"key"`
		Value   json.RawMessage `json:"value"`
		Version *int64          `json:"version"`
		TTL     int64           `json:"ttl_ms"`
		Prefix  string          `json:"prefix"`
		After   string          `json:"after"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.Key == "" && do != "list" || in.Value == nil && do == "set" || in.TTL != 0 && kind != "kv" {
		return nil, &guest.HostError{Code: "invalid", Message: "not a request of " + op}
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	old := s.get(in.Key)
	if writes && in.Version != nil && *in.Version != old.Version {
		return nil, &guest.HostError{Code: "conflict", Message: "it has changed in the meantime: read it again"}
	}
	switch do {
	case "get":
		return value{Version: old.Version, Data: old.Data}, nil
	case "set":
		if s.values == nil {
			s.values = map[string]value{}
		}
		s.version++
		v := value{Key: in.Key, Version: s.version, Bytes: len(in.Value), Data: in.Value}
		if in.TTL > 0 {
			v.expires = time.Now().Add(time.Duration(in.TTL) * time.Millisecond)
		}
		s.values[in.Key] = v
		return value{Version: s.version}, nil
	case "delete":
		delete(s.values, in.Key)
		return map[string]bool{"deleted": old.Version > 0}, nil
	case "list":
		all := []value{}
		for key := range s.values {
			if v := s.get(key); v.Version > 0 && strings.HasPrefix(key, in.Prefix) && key > in.After {
				v.Data = nil
				all = append(all, v)
			}
		}
		slices.SortFunc(all, func(a, b value) int { return cmp.Compare(a.Key, b.Key) })
		return map[string]any{"values": all}, nil
	}
	return nil, nil
}
