package guest

import (
	"encoding/json"
	"iter"
	"time"
)

// KV is the plugin's own key-value store: JSON documents of up to 256 KiB each, which
// persist for later calls of the plugin. The operator decides how many there may be, by
// default 1,000 with 4 MiB in total, and whether all sessions share the store or each
// has its own. Do not keep secrets there: the operator can read it.
//
// Reading needs the grant kv: {mode: read}, and writing mode: write; otherwise errors
// match [ErrDenied]. A tool with the hint readonly cannot write. A key is 1 to 128
// letters, digits and . _ : @ -.
type KV struct{ values store }

// KV returns the key-value store of the plugin.
func (c *Call) KV() KV { return KV{store{c, "kv."}} }

// StoredValue describes a stored value.
type StoredValue struct {
	Key     string `json:"key"`
	Version int64  `json:"version"`
	Bytes   int    `json:"bytes"`
}

// Get decodes a value into value, a pointer, and returns its version. A missing value
// has the version 0 and leaves the pointer's target as it is.
func (k KV) Get(key string, value any) (version int64, err error) { return k.values.get(key, value) }

// Set stores a value as JSON, durably. The last write wins. Each write costs a million units of
// fuel and a write to disk. If a limit of the store is exceeded, the error matches [ErrLimit].
func (k KV) Set(key string, value any) error { return k.SetFor(key, value, 0) }

// SetFor is like [KV.Set], but the value expires after ttl, which is at most ten years; 0 means
// never.
func (k KV) SetFor(key string, value any, ttl time.Duration) error {
	_, err := k.values.set(key, value, nil, ttl)
	return err
}

// SetIf is like [KV.SetFor], but writes only if the stored value has the given version, where 0
// means that there is no value yet. It returns the new version. If the stored version is a
// different one, the error matches [ErrConflict]: get the value again.
func (k KV) SetIf(key string, value any, version int64, ttl time.Duration) (int64, error) {
	return k.values.set(key, value, &version, ttl)
}

// Delete removes a value, if there is one.
func (k KV) Delete(key string) error { return k.values.delete(key) }

// List returns the values whose keys begin with prefix, sorted by key. The sequence
// ends after an error.
func (k KV) List(prefix string) iter.Seq2[StoredValue, error] {
	return func(yield func(StoredValue, error) bool) {
		after, more := "", true
		for more {
			page, err := k.values.list(map[string]string{"prefix": prefix, "after": after}, &more)
			if err != nil {
				yield(StoredValue{}, err)
				return
			}
			for _, v := range page {
				if after = v.Key; !yield(v, nil) {
					return
				}
			}
		}
	}
}

// store calls the host's operations on stored values.
type store struct {
	call   *Call
	prefix string // prefix of the operations' names
}

func (s store) get(key string, value any) (version int64, err error) {
	var out struct {
		Version int64           `json:"version"`
		Value   json.RawMessage `json:"value"`
	}
	if err := s.call.Host(s.prefix+"get", map[string]any{"key": key}, &out); err != nil || out.Version == 0 {
		return 0, err
	}
	return out.Version, json.Unmarshal(out.Value, value)
}

func (s store) set(key string, value any, version *int64, ttl time.Duration) (int64, error) {
	request := struct {
		Key     string `json:"key"`
		Value   any    `json:"value"`
		Version *int64 `json:"version,omitempty"`
		TTL     int64  `json:"ttl_ms,omitempty"`
	}{key, value, version, int64((ttl + time.Millisecond - 1) / time.Millisecond)}
	var out StoredValue
	err := s.call.Host(s.prefix+"set", request, &out)
	return out.Version, err
}

func (s store) delete(key string) error {
	return s.call.Host(s.prefix+"delete", map[string]any{"key": key}, nil)
}

func (s store) list(request any, more *bool) ([]StoredValue, error) {
	var out struct {
		Values []StoredValue `json:"values"`
		More   bool          `json:"more"`
	}
	err := s.call.Host(s.prefix+"list", request, &out)
	if more != nil {
		*more = out.More
	}
	return out.Values, err
}
