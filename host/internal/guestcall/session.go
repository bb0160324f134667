package guestcall

import (
	"github.com/toolhost/toolhost/abi"
)

// sessionOperations use the values of the session.
var sessionOperations = map[string]Operation{
	"session.get":    {readsSession, "session is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", valueOperation(&ofSession, getValue)},
	"session.list":   {readsSession, "session is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", valueOperation(&ofSession, listValues)},
	"session.set":    {writesSession, noSessionWrite, acting(valueOperation(&ofSession, setValue))},
	"session.delete": {writesSession, noSessionWrite, acting(valueOperation(&ofSession, deleteValue))},
}

const noSessionWrite = "writing session values is not granted to this plugin: have the operator grant it, or name it in the plugin's needs as session: write"

func readsSession(c *Call) bool  { return c.Grant.Session != "" }
func writesSession(c *Call) bool { return c.Grant.Session == abi.StoreWrite }

// ofSession is the value store of the session.
var ofSession = valueStore{
	of: func(c *Call) Values { return c.Values }, missing: "this call has no session",
	most: abi.MaxSessionValue, what: "of the session",
}
