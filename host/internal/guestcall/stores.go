package guestcall

import "github.com/toolhost/toolhost/abi"

// ofKV is the key-value store of the plugin.
var ofKV = valueStore{
	name: "kv", writing: "to kv", mode: func(c *Call) abi.StoreMode { return c.Grant.KV.Mode },
	of: func(c *Call) Values { return c.KV }, missing: "this call has no session, and each session has a key-value store of its own",
	most: abi.MaxKVValue, what: "of kv", expires: true,
}

// ofSession is the value store of the session.
var ofSession = valueStore{
	name: "session", writing: "session values", mode: func(c *Call) abi.StoreMode { return c.Grant.Session },
	of: func(c *Call) Values { return c.Values }, missing: "this call has no session",
	most: abi.MaxSessionValue, what: "of the session",
}

// operations returns the operations on the store.
func (s *valueStore) operations() map[string]Operation {
	reads := func(c *Call) bool { return s.mode(c) != "" }
	writes := func(c *Call) bool { return s.mode(c) == abi.StoreWrite }
	notRead := s.name + notGranted
	return map[string]Operation{
		s.name + ".get":    {reads, notRead, valueOperation(s, getValue)},
		s.name + ".list":   {reads, notRead, valueOperation(s, listValues)},
		s.name + ".set":    {writes, s.notWritten(), acting(valueOperation(s, setValue))},
		s.name + ".delete": {writes, s.notWritten(), acting(valueOperation(s, deleteValue))},
	}
}

const notGranted = " is not granted to this plugin: have the operator grant it, or name it in the plugin's needs"

// notWritten is the error text for a plugin that may not write to the store.
func (s *valueStore) notWritten() string {
	return "writing " + s.writing + notGranted + " as " + s.name + ": write"
}
