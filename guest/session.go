package guest

// Session holds the values that the tools of a session share: JSON documents of up to
// 64 KiB each, at most 256 of them with 1 MiB in total. They outlive the call and are
// removed with the session. Do not keep secrets there: other tools of the session, and
// its user, can read them.
//
// Reading needs the grant session: read, and writing session: write; otherwise errors
// match [ErrDenied]. A tool with the hint readonly cannot write. A key is 1 to 128
// letters, digits and . _ : @ -.
type Session struct{ values store }

// Session returns the values of the session of the call.
func (c *Call) Session() Session { return Session{store{c, "session."}} }

// SessionValue describes a value of a session.
type SessionValue = StoredValue

// Get decodes a value into value, a pointer, and returns its version. A missing value
// has the version 0 and leaves the pointer's target as it is.
func (s Session) Get(key string, value any) (version int64, err error) {
	return s.values.get(key, value)
}

// Set stores a value as JSON. The last write wins. Each write costs a million units of fuel and
// a write to disk.
func (s Session) Set(key string, value any) error {
	_, err := s.values.set(key, value, nil, 0)
	return err
}

// SetIf is like [Session.Set], but writes only if the stored value has the given version, where
// 0 means that there is no value yet. It returns the new version. If the stored version is a
// different one, the error matches [ErrConflict]: get the value again.
func (s Session) SetIf(key string, value any, version int64) (int64, error) {
	return s.values.set(key, value, &version, 0)
}

// Delete removes a value, if there is one.
func (s Session) Delete(key string) error { return s.values.delete(key) }

// List returns all values, sorted by key.
func (s Session) List() ([]SessionValue, error) { return s.values.list(struct{}{}, nil) }
