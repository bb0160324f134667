package guestcall

import (
	"github.com/toolhost/toolhost/abi"
)

// kvOperations use the key-value store of the plugin.
var kvOperations = map[string]Operation{
	"kv.get":    {readsKV, "kv is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", valueOperation(&ofKV, getValue)},
	"kv.list":   {readsKV, "kv is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", valueOperation(&ofKV, listValues)},
	"kv.set":    {writesKV, noKVWrite, acting(valueOperation(&ofKV, setValue))},
	"kv.delete": {writesKV, noKVWrite, acting(valueOperation(&ofKV, deleteValue))},
}

// ofKV is the value store of the plugin.
var ofKV = valueStore{
	of: func(c *Call) Values { return c.KV }, missing: "this call has no session, and each session has a key-value store of its own",
	most: abi.MaxKVValue, what: "of kv", expires: true,
}

const noKVWrite = "writing to kv is not granted to this plugin: have the operator grant it, or name it in the plugin's needs as kv: write"

func readsKV(c *Call) bool  { return c.Grant.KV.Mode != "" }
func writesKV(c *Call) bool { return c.Grant.KV.Mode == abi.StoreWrite }
