package guest

import "encoding/json"

// Session is the values that the tools of a session share: JSON documents of up to
// 64 KiB each, 256 of them and 1 MiB together. They outlast the call and are removed
// with the session. Do not keep secrets there: other tools of the session, and its
// user, can read them.
//
// Reading needs the grant session: read, and writing session: write; else errors
// match [ErrDenied]. A tool with the hint readonly cannot write. A key is 1 to 128
// letters, digits and . _ : @ -.
type Session struct{ call *Call }

// Session returns the values of the session of the call.
func (c *Call) Session() Session { return Session{c} }

// SessionValue describes a value of a session.
type SessionValue struct {
	Key     string `json:"key"`
	Version int64  `json:"version"`
	Bytes   int    `json:"bytes"`
}

// Get decodes a value into value, a pointer, and returns its version. A missing value
// has the version 0 and leaves the pointer's target as it is.
func (s Session) Get(key string, value any) (version int64, err error) {
	var out struct {
		Version int64           `json:"version"`
		Value   json.RawMessage `json:"value"`
	}
	if err := s.call.Host("session.get", map[string]any{"key": key}, &out); err != nil || out.Version == 0 {
		return 0, err
	}
	return out.Version, json.Unmarshal(out.Value, value)
}

// Set stores a value as JSON. Of several writes the last counts. It costs a million
// units of fuel and a write to disk.
func (s Session) Set(key string, value any) error {
	return s.call.Host("session.set", map[string]any{"key": key, "value": value}, nil)
}

// SetIf is Set if the stored value has that version, 0 for none, and returns the new
// version. Else the error matches [ErrConflict]: get the value again.
func (s Session) SetIf(key string, value any, version int64) (int64, error) {
	var out SessionValue
	err := s.call.Host("session.set", map[string]any{"key": key, "value": value, "version": version}, &out)
	return out.Version, err
}

// Delete removes a value, if there is one.
func (s Session) Delete(key string) error {
	return s.call.Host("session.delete", map[string]any{"key": key}, nil)
}

// List returns all values by key.
func (s Session) List() ([]SessionValue, error) {
	var out struct {
		Values []SessionValue `json:"values"`
	}
	err := s.call.Host("session.list", struct{}{}, &out)
	return out.Values, err
}
